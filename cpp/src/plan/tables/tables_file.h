// Tables whose placement is to be decided: rows by key, of which a step touches few.
//
//   CORRO_ASSIGN(const Tables tables, read_tables(text, "tables.yaml"));
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace corro::plan {

/// Where a table's rows are: on table servers (corro.table.Table), or all on every rank, as a
/// parameter like any other.
enum class TablePlace : uint8_t { kServed, kReplicated };
inline constexpr int kTablePlaceCount = 2;
/// "served", "replicated".
[[nodiscard]] std::string_view name_of(TablePlace place);

/// As corro.table has them; their state is in f32.
enum class RowOptimizer : uint8_t { kSgd, kMomentum, kAdagrad, kRowwiseAdagrad, kAdam, kFtrl };
inline constexpr int kRowOptimizerCount = 6;
[[nodiscard]] std::string_view name_of(RowOptimizer optimizer);

enum class RowDType : uint8_t { kF32, kBF16, kF16 };
inline constexpr int kRowDTypeCount = 3;
[[nodiscard]] std::string_view name_of(RowDType dtype);

struct TableNeed {
  std::string name = {};
  double rows = 0;  ///< That training touches, in all; at least 1.
  uint32_t dim = 0;
  RowOptimizer optimizer = RowOptimizer::kSgd;
  RowDType dtype = RowDType::kF32;
  double ids = 1;  ///< Of a sample, on average; more than 0.
  /// Ids of a rank's part of a batch that differ from each other, 0 to 1 of all its ids. Left out:
  /// as if each row were equally likely, which is the most there can be.
  std::optional<double> distinct = {};
  std::optional<TablePlace> pinned = {};
};

struct Tables {
  std::string name = {};
  uint32_t batch = 0;        ///< Samples of a step, of all ranks.
  uint32_t ranks = 0;        ///< 0: one for each device of the cluster.
  uint32_t servers = 0;      ///< 0: to be decided.
  uint32_t replicas = 1;     ///< Further servers that have each row.
  double step = 0;           ///< Seconds of a step without tables; 0: not known.
  double rank_memory = 0;    ///< Bytes of a rank that tables may have; 0: a tenth of its device's.
  double server_memory = 0;  ///< Bytes of a server; 0: the host memory of the cluster's file.
  std::vector<TableNeed> tables = {};
};

inline constexpr size_t kMostTables = 65'536;
inline constexpr uint32_t kMostTableServers = 4096;

/// Reads a file of tables, YAML or JSON (docs/planner-inputs.md). INVALID_ARGUMENT
/// "name:line: place: ..." for whatever it may not hold.
[[nodiscard]] Result<Tables> read_tables(std::string_view text, std::string_view name);

/// Bytes of a row's weights and of its optimizer's state.
[[nodiscard]] double row_bytes(const TableNeed& table);

}  // namespace corro::plan
