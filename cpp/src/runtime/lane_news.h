// LaneNews: what other members have said of a lane's operations before or after these ran here.
//
// Members are ahead and behind each other. What one says of an operation that has not started here
// is kept until it starts; what one says of an operation that is over is compared with the last ones,
// which are remembered, twice as many as are in flight: a difference is the error of the next call.
// Of what members wait for, the newest word of each counts.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "base/signature_bits.h"
#include "base/status.h"
#include "collective/board/segment.h"

namespace corro::runtime {

/// Loop-confined. Ranks are group ranks.
class LaneNews {
 public:
  /// What is remembered of an operation that is over.
  struct Past {
    uint64_t op = UINT64_MAX;
    SignatureBits signature = {};
    bool failed = false;
  };
  using Said = std::pair<int32_t, SignatureBits>;  ///< A rank, and what it called.

  /// The last kRemembered operations are.
  void remember(const Past& past) { past_[past.op % past_.size()] = past; }
  /// Null if it is not over, or too old.
  [[nodiscard]] Past* find_past(uint64_t op) {
    Past& past = past_[op % past_.size()];
    return past.op == op ? &past : nullptr;
  }

  /// A rank has called `signature` in an operation that has not started here.
  void keep_call(uint64_t op, const Said& said) { calls_.emplace(op, said); }
  [[nodiscard]] std::optional<Said> take_call(uint64_t op) { return take(calls_, op); }
  /// An operation that has not started here has failed elsewhere.
  void keep_cancel(uint64_t op, const Status& cause) { cancels_.emplace(op, cause); }
  [[nodiscard]] std::optional<Status> take_cancel(uint64_t op) { return take(cancels_, op); }

  /// `from` has waited for `awaited` in the operation for long.
  void note_waiting(int32_t from, uint64_t op, int32_t awaited) {
    waiting_[{from, op % collective::kLines}] = {op, awaited};
  }
  /// The rank at the end of the chain that begins with `first`: it is not in the operation, or says
  /// nothing. `first` if they wait in a circle.
  [[nodiscard]] int32_t follow_waiting(uint64_t op, int32_t first, int32_t own) const {
    int32_t last = first;
    for (size_t hops = 0; hops <= waiting_.size(); ++hops) {
      const auto found = waiting_.find({last, op % collective::kLines});
      if (found == waiting_.end() || found->second.first != op) return last;
      last = found->second.second;
      if (last == own) break;
    }
    return first;
  }

  /// For the next call: an operation that had returned here failed elsewhere.
  Status next_error;

 private:
  template <typename Value>
  static std::optional<Value> take(std::map<uint64_t, Value>& values, uint64_t op) {
    auto node = values.extract(op);
    if (node.empty()) return std::nullopt;
    return std::move(node.mapped());
  }

  static constexpr size_t kRemembered = 2 * size_t{collective::kLines};
  std::array<Past, kRemembered> past_;
  std::map<uint64_t, Said> calls_;
  std::map<uint64_t, Status> cancels_;
  /// By member and place of its operation among those in flight: the op id, and whom it waits for.
  std::map<std::pair<int32_t, uint64_t>, std::pair<uint64_t, int32_t>> waiting_;
};

}  // namespace corro::runtime
