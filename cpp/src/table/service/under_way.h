// What a worker has under way with servers between its user's calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "table/service/messages.h"
#include "table/service/split.h"

namespace corro::table {

/// A push that not all servers have answered.
struct PushUnderWay {
  uint64_t step = 0;
  std::vector<uint64_t> keys;  ///< Ascending.
  std::vector<float> sums;     ///< [keys, dim]
  float lr = 0;
  uint64_t version = 0;   ///< Of the holders that it was said to last.
  size_t unanswered = 0;  ///< Messages.
};

/// Rows of some ids, asked for by a pull, or ahead of it:
///
///   asked       some answers are still to come
///   there       all have come: each row is of `step`, or of a later one
///   refreshed   asked once more, for what has changed since `step`
///   failed      a server has refused
///
/// Kept by the worker, and weakly by its questions: whose answers come to a fetch that nobody wants
/// any more are dropped.
class Fetch {
 public:
  Fetch(std::span<const uint64_t> ids, uint32_t dim);

  [[nodiscard]] bool is_of(std::span<const uint64_t> ids) const;
  [[nodiscard]] const std::vector<uint64_t>& ids() const { return ids_; }
  [[nodiscard]] const std::vector<uint64_t>& keys() const { return keys_.keys; }
  [[nodiscard]] bool arriving() const { return unanswered_ > 0; }
  [[nodiscard]] const Status& failure() const { return failure_; }
  /// The step of which all rows are, or a later one. None: not all have come yet.
  [[nodiscard]] std::optional<uint64_t> step() const { return step_; }
  /// The step that its questions wait for.
  [[nodiscard]] uint64_t at_least() const { return at_least_; }

  /// It is asked now, with so many questions as are counted, of which `at_least` is the step.
  void ask(uint64_t at_least);
  void count_question() { ++unanswered_; }
  /// Its questions were forgotten, and cannot be asked again.
  void fail(const Status& why);
  /// Takes an answer. `rows`: the indices of the keys that were asked for.
  void take(const Status& status, MessageKind kind, BytesView body, std::span<const uint32_t> rows);
  /// All was asked; there may have been nothing to ask.
  void end_if_answered();

  /// For the ids, in their order: [ids, dim].
  void copy_rows(std::span<float> values) const;

 private:
  Status take_rows(MessageKind kind, BytesView body, std::span<const uint32_t> rows);

  const std::vector<uint64_t> ids_;
  const uint32_t dim_;
  const DistinctKeys keys_;
  std::vector<float> rows_;  ///< [keys, dim]
  std::optional<uint64_t> step_;
  uint64_t arrived_step_ = 0;  ///< The least one of what has come since ask().
  uint64_t at_least_ = 0;
  size_t unanswered_ = 0;
  Status failure_;
};

}  // namespace corro::table
