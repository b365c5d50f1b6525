// ServedTable: a server's part of one table: its rows, and the step that its ranks are about to
// take together.
//
// A step of the table is one push of each rank. What a rank pushes may come in several parts, and
// parts may come again, when its connection was broken before they were answered:
//
//   absent    nothing of this step has come from the rank
//   partial   some parts have. The next one follows them. What has come changes nothing any more
//   whole     all have. Nothing that comes of it changes anything
//
// Once every rank is whole the gradients of each key are added up in the order of the ranks,
// whatever the order in which they came, and the optimizer takes one step. Then all ranks are
// absent, of the next step. A push of a step that was taken changes nothing, and is answered at
// once: so each push counts exactly once, however often it is sent.
//
// Without clock and I/O: the server keeps deadlines, and answers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "table/local_table.h"
#include "table/service/messages.h"

namespace corro::table {

/// Bytes of one rank's push that a server keeps until the others have pushed.
inline constexpr size_t kMaxPushBytes = size_t{4} << 30U;

/// Loop-confined.
class ServedTable {
 public:
  [[nodiscard]] static Result<std::unique_ptr<ServedTable>> create(const Open& open);

  /// FAILED_PRECONDITION or INVALID_ARGUMENT if this rank means another table by this name, or
  /// another number of ranks or replicas.
  [[nodiscard]] Status open(const Open& open) const;
  [[nodiscard]] const TableSpec& spec() const { return rows_->spec(); }
  [[nodiscard]] uint64_t steps() const { return steps_; }

  /// As LocalTable::pull().
  void pull(std::span<const uint64_t> keys, std::span<float> values) const {
    rows_->pull(keys, values);
  }

  enum class Taken : uint8_t {
    kPart,   ///< Parts are still to come.
    kWhole,  ///< This was the last one: the push waits for those of other ranks.
    kOld,    ///< The step was taken.
  };
  /// Takes a part of a rank's push. INVALID_ARGUMENT or FAILED_PRECONDITION: it does not fit, and
  /// nothing has changed.
  [[nodiscard]] Result<Taken> take(uint32_t rank, const Push& push);
  /// Every rank's push is whole.
  [[nodiscard]] bool ready() const { return whole_ == pushes_.size(); }
  /// Takes the step; all ranks have to be whole. INVALID_ARGUMENT: the pushes were dropped, and no
  /// row has changed.
  [[nodiscard]] Status apply();
  /// Ranks that the next step waits for: "rank 1", "ranks 1, 2 and 5 more".
  [[nodiscard]] std::string describe_missing() const;

 private:
  struct RankPush {
    bool whole = false;
    float lr = 0;
    uint64_t rows = 0;  ///< That are to come in all.
    std::vector<uint64_t> keys;
    std::vector<float> gradients;
  };

  ServedTable(std::unique_ptr<LocalTable> rows, const Open& open)
      : rows_(std::move(rows)), replicas_(open.replicas), pushes_(open.ranks) {}
  [[nodiscard]] Status check_part(const RankPush& known, uint32_t rank, const Push& push) const;
  [[nodiscard]] Status check_rates() const;
  Status take_step();
  void add_up(std::vector<uint64_t>& keys, std::vector<float>& gradients) const;

  std::unique_ptr<LocalTable> rows_;
  const uint32_t replicas_;
  std::vector<RankPush> pushes_;  ///< By rank.
  size_t whole_ = 0;
  uint64_t steps_ = 0;
};

}  // namespace corro::table
