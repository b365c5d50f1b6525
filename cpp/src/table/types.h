// What a table is made of, as its users say it: rows, their type, their first values, and how a
// gradient changes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/dtype.h"
#include "base/status.h"

namespace corro::table {

/// Values are part of the wire format and of the C ABI; never renumber.
enum class OptimizerKind : uint8_t {
  kSgd = 0,
  kMomentum = 1,
  kAdagrad = 2,
  kRowwiseAdagrad = 3,
  kAdam = 4,
  kFtrl = 5,
};
inline constexpr int kOptimizerKindCount = 6;

/// As users write it: "sgd", "momentum", "adagrad", "rowwise_adagrad", "adam", "ftrl".
[[nodiscard]] std::string_view name_of(OptimizerKind kind);
[[nodiscard]] std::optional<OptimizerKind> optimizer_named(std::string_view name);

/// How a gradient changes a row. A field that the kind does not use has no effect. All but `lr` are
/// constant for the life of a table.
struct Optimizer {
  OptimizerKind kind = OptimizerKind::kSgd;
  float lr = 0.01F;                  ///< > 0, finite.
  float momentum = 0.9F;             ///< Momentum: in [0, 1).
  float beta1 = 0.9F;                ///< Adam: in [0, 1).
  float beta2 = 0.999F;              ///< Adam: in [0, 1).
  float epsilon = 1e-8F;             ///< Adagrad, row-wise Adagrad, Adam: >= 0.
  float initial_accumulator = 0.0F;  ///< Adagrad, row-wise Adagrad, FTRL: >= 0.
  float l1 = 0.0F;                   ///< FTRL: >= 0.
  float l2 = 0.0F;                   ///< FTRL: >= 0.
  float beta = 0.0F;                 ///< FTRL: >= 0, what its rate's denominator begins with.
  bool operator==(const Optimizer&) const = default;
};

/// The values of a row that no gradient has changed: a function of the table's seed and name, the
/// row's key and the element, so that every server gives the same ones at any time.
enum class InitialKind : uint8_t {
  kConstant = 0,  ///< All are `low`; `high` is finite.
  kUniform = 1,   ///< In [low, high), low < high, before it is rounded to the table's type.
  kNormal = 2,    ///< Mean `low`, standard deviation `high` >= 0.
};
inline constexpr int kInitialKindCount = 3;
struct Initial {
  InitialKind kind = InitialKind::kConstant;
  float low = 0;
  float high = 0;
  bool operator==(const Initial&) const = default;
};

/// Which keys get a row at all, and which rows go again. Nothing is set: each that is pushed does,
/// and none goes. Pulls do not count: servers that do the same pushes have the same rows. A key
/// whose row went has its initial values again.
struct Retention {
  /// A key gets its row with this push of it, sooner if its counters are others', too (count-min,
  /// 8 MiB a table); gradients of the pushes before are dropped. 0 and 1: at once. Pushes of keys
  /// without a row are half forgotten after a million of them. At most kMaxLeastPushes.
  uint32_t least_pushes = 0;
  /// A row goes that so many steps have not touched. 0: never. At most kMaxIdleSteps.
  uint32_t idle_steps = 0;
  /// Of rows and index: a new row beyond it takes the place of a cold one (CLOCK). 0: no limit.
  /// At least kLeastMostBytes.
  uint64_t most_bytes = 0;
  /// A folder on a local disk: with it rows beyond most_bytes lie there, and none goes for it. "":
  /// none. An absolute path of at most kMaxSpillBytes bytes.
  std::string spill = {};
  bool operator==(const Retention&) const = default;

  /// Rows go by themselves, for either of these.
  [[nodiscard]] bool lets_rows_go() const {
    return idle_steps > 0 || (most_bytes > 0 && spill.empty());
  }
};

/// When a push counts, and how far ranks may be apart.
enum class Mode : uint8_t {
  kSync = 0,     ///< A step is one push of each rank, and a push is over when its step is taken.
  kBounded = 1,  ///< The same steps; a rank may be up to `staleness` pushes ahead of them.
  kAsync = 2,    ///< A push counts when it arrives, by itself; nobody waits for another rank.
};
inline constexpr int kModeCount = 3;
/// As users write it: "sync", "bounded", "async".
[[nodiscard]] std::string_view name_of(Mode mode);

inline constexpr uint32_t kMaxStaleness = 64;
inline constexpr uint32_t kMaxDim = 4096;
inline constexpr size_t kMaxNameBytes = 128;
inline constexpr uint32_t kMaxLeastPushes = 65535;
inline constexpr uint32_t kMaxIdleSteps = 1'000'000'000;
inline constexpr size_t kMaxSpillBytes = 4000;
inline constexpr uint64_t kLeastMostBytes = 1U << 20U;

/// A table; equal on all who use it.
struct TableSpec {
  std::string name = {};      ///< 1 to kMaxNameBytes bytes: letters, digits, and "_.-/".
  uint32_t dim = 0;           ///< Elements of a row: 1 to kMaxDim.
  DType dtype = DType::kF32;  ///< Of weights as they are kept: f32, bf16 or f16.
  uint64_t seed = 0;          ///< Of the initial values, and of the rounding of bf16 and f16.
  Optimizer optimizer = {};
  Initial initial = {};
  Retention retention = {};
  Mode mode = Mode::kSync;
  /// So many pushes of a rank may be unanswered when its call of push() returns: at most
  /// kMaxStaleness; 0 in sync mode, at least 1 in bounded mode.
  uint32_t staleness = 0;
  bool operator==(const TableSpec&) const = default;
};

/// Counts of a table.
struct TableStats {
  uint64_t rows = 0;
  uint64_t bytes =
      0;  ///< Of rows and index in memory, as allocated; the sketch of least_pushes is not in it.
  uint64_t evicted = 0;   ///< Rows that went, ever.
  uint64_t admitted = 0;  ///< Rows that were made, ever.

  // Only with `spill`.
  uint64_t rows_in_memory = 0;
  uint64_t disk_bytes = 0;    ///< Of the file.
  uint64_t disk_reads = 0;    ///< Ever, for pulls and pushes; one has a row or several.
  uint64_t rows_written = 0;  ///< Ever.
  uint64_t rows_warmed = 0;   ///< That came into memory by a pull, ever.
};

/// INVALID_ARGUMENT names the table, the field and its range.
[[nodiscard]] Status check(const TableSpec& spec);
/// Both have passed check(). INVALID_ARGUMENT names the first field in which these two of one name differ: "table t: dim is
/// 16 here and 8 there". `optimizer.lr` may differ.
[[nodiscard]] Status check_alike(const TableSpec& here, const TableSpec& there);

}  // namespace corro::table
