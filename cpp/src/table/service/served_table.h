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
// A rank picks the keys of a push by a version of the table's holders (holders.h). If it hears of a
// later version before the step is taken, it says the push once more, of that version: the later
// version takes the place of the earlier one, and a step needs pushes of one version from all
// ranks. So no server takes a step of which a rank has not said all that belongs to it.
//
// In bounded mode a rank pushes up to `staleness` steps ahead of the one that is taken next: each of
// these is kept by itself, in the order of steps, and they are taken in it.
//
// Once every rank is whole the gradients of each key are added up in the order of the ranks,
// whatever the order in which they came, and the optimizer takes one step. Then all ranks are
// absent, of the next step. A push of a step that was taken changes nothing, and is answered at
// once: so each push counts exactly once, however often it is sent.
//
// In async mode a rank's pushes are steps by themselves. They are numbered by the rank, and the next
// one of each is taken as soon as it is whole.
//
// Without clock and I/O: the server keeps deadlines, and answers.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "table/local_table.h"
#include "table/service/changes.h"
#include "table/service/changes_since_saves.h"
#include "table/service/memory_guard.h"
#include "table/service/messages.h"
#include "table/service/row_snapshot.h"
#include "table/service/snapshot_messages.h"

namespace corro::table {

/// Bytes of one rank's pushes that a server keeps until the others have pushed.
inline constexpr size_t kMaxPushBytes = size_t{4} << 30U;

/// Loop-confined.
class ServedTable {
 public:
  /// `shards`: as of Holders. `guard`: asked before each step; borrowed, null for none.
  [[nodiscard]] static Result<std::unique_ptr<ServedTable>> create(const Open& open,
                                                                   size_t shards = kShards,
                                                                   MemoryGuard* guard = nullptr);

  /// FAILED_PRECONDITION or INVALID_ARGUMENT if this rank means another table by this name, or
  /// another number of ranks or replicas.
  [[nodiscard]] Status open(const Open& open) const;
  [[nodiscard]] const TableSpec& spec() const { return rows_->spec(); }
  /// Taken so far; in async mode pushes of all ranks.
  [[nodiscard]] uint64_t steps() const { return steps_; }
  [[nodiscard]] TableStats stats() const { return rows_->stats(); }
  /// How many of the shards are this server's; none: nobody has told.
  [[nodiscard]] std::optional<size_t> shards() const {
    return held_ ? std::optional(held_->count()) : std::nullopt;
  }
  /// What this rank's next push follows.
  [[nodiscard]] uint64_t steps_of(uint32_t rank) const {
    return is_async() ? pushed_.at(rank) : steps_;
  }

  /// As LocalTable::pull().
  [[nodiscard]] Status pull(std::span<const uint64_t> keys, std::span<float> values) const {
    return rows_->pull(keys, values);
  }
  /// As Changes::since().
  [[nodiscard]] std::optional<std::vector<uint32_t>> changed_since(
      uint64_t step, std::span<const uint64_t> keys) const {
    return changes_.since(step, keys);
  }

  enum class Taken : uint8_t {
    kPart,   ///< Parts are still to come.
    kWhole,  ///< This was the last one: the push waits for those of other ranks.
    kOld,    ///< The step was taken.
    kStale,  ///< A later version of the push is there, or in part. Nobody waits for an answer.
  };
  /// Takes a part of a rank's push. INVALID_ARGUMENT or FAILED_PRECONDITION: it does not fit, and
  /// nothing has changed.
  [[nodiscard]] Result<Taken> take(uint32_t rank, const Push& push);
  /// Every rank's push of the next step is whole, and all are of one version. In async mode: some
  /// rank's is whole.
  [[nodiscard]] bool ready() const;
  /// Takes what is ready. INVALID_ARGUMENT, or RESOURCE_EXHAUSTED and DATA_LOSS as
  /// LocalTable::push() and MemoryGuard say: pushes were dropped, those of later steps, too, and no
  /// row has changed.
  [[nodiscard]] Status apply();
  /// The next step cannot be taken before this rank has pushed.
  [[nodiscard]] bool waits_for(uint32_t rank) const { return !is_async() && !next()[rank].whole; }
  /// Ranks that the next step waits for: "rank 1", "ranks 1, 2 and 5 more".
  [[nodiscard]] std::string describe_missing() const;

  /// Packs the rows of some shards: the body of EXPORTED. Fails as LocalTable::pack().
  [[nodiscard]] Result<Bytes> pack(const Export& wanted) const;
  /// Takes rows over. The table goes on from their step, if it has taken none by itself.
  /// INVALID_ARGUMENT or FAILED_PRECONDITION: they do not fit.
  [[nodiscard]] Status unpack(const PackedRows& rows);
  /// The rows of these shards, as they are now, are handed out from now on while steps are taken:
  /// nothing else that was asked before is any more. Of a delta those that have changed since its base,
  /// as far as that is known.
  void begin_snapshot(const Save& save);
  /// The next page of them; none: that was all. As RowSnapshot.
  [[nodiscard]] Result<std::optional<Bytes>> next_page(size_t most_bytes);
  /// Nobody wants what is left of them.
  void end_snapshot() { snapshot_.reset(); }
  /// The next step has to wait until next_page() has given all: rows may go by themselves, or there
  /// are too many copies.
  [[nodiscard]] bool has_to_hand_out() const;
  /// Goes on with other rows, after so many steps.
  void adopt(std::unique_ptr<LocalTable> rows, uint64_t steps);

  /// With the first step of this version, or a later one, all ranks know that this server holds
  /// these shards and no others: then rows of others go.
  void hold(uint64_t version, const ShardSet& shards);

 private:
  struct RankPush {
    bool whole = false;
    uint64_t version = 0;
    float lr = 0;
    uint64_t rows = 0;  ///< That are to come in all.
    std::vector<uint64_t> keys;
    std::vector<float> gradients;
  };

  using Step = std::vector<RankPush>;  ///< By rank.

  ServedTable(std::unique_ptr<LocalTable> rows, const Open& open, size_t shards, MemoryGuard* guard)
      : rows_(std::move(rows)),
        replicas_(open.replicas),
        shards_(shards),
        guard_(guard),
        pushed_(open.ranks),
        upcoming_({Step(open.ranks)}) {}
  [[nodiscard]] bool is_async() const { return spec().mode == Mode::kAsync; }
  [[nodiscard]] const Step& next() const { return upcoming_.front(); }
  /// What is there of this push, or nothing yet. FAILED_PRECONDITION: it is too far ahead.
  [[nodiscard]] Result<RankPush*> find(uint32_t rank, const PushHead& head);
  [[nodiscard]] Status refuse(uint32_t rank, const PushHead& head, std::string_view why) const;
  [[nodiscard]] Status check_part(const RankPush& known, uint32_t rank, const Push& push) const;
  [[nodiscard]] Status check_size(uint32_t rank, const Push& push) const;
  [[nodiscard]] Status check_rates() const;
  Status take_step();
  Status push_rows(std::span<const uint64_t> keys, std::span<const float> gradients);
  Status take_alone(RankPush& push);
  void finish_step(std::vector<uint64_t> changed);
  void forget_others(uint64_t version);
  [[nodiscard]] uint64_t last_version() const;
  void add_up(std::vector<uint64_t>& keys, std::vector<float>& gradients) const;

  std::unique_ptr<LocalTable> rows_;
  const uint32_t replicas_;
  const size_t shards_;
  MemoryGuard* const guard_;
  std::vector<uint64_t> pushed_;  ///< In async mode, by rank: pushes that were taken.
  std::deque<Step> upcoming_;     ///< The next step, and those of which something has come.
  uint64_t steps_ = 0;
  Changes changes_;
  bool stepped_ = false;          ///< It has taken a step by itself.
  uint64_t version_ = 0;          ///< Of the shards below; 0: nobody has told them.
  std::optional<ShardSet> held_;  ///< Shards of this server.
  ChangesSinceSaves since_saves_;
  std::optional<RowSnapshot> snapshot_;  ///< Of rows_, until all of it was handed out.
  bool forgets_ = false;                 ///< With the next step of that version rows of others go.
};

}  // namespace corro::table
