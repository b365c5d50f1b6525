// PageQueue: parts that one thread reads, and another one takes.
//
//   reader    PartReader(queue) puts heads and pages in, at most a few; end() says how it went
//   taker     hand_all(loader) takes them out until then, and gives a page's memory back for the next
//
// If the taker fails, the reader's next page fails with CANCELLED, so that it ends, too; so does
// give_up() of a third thread for both.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <variant>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "table/service/snapshot_part.h"

namespace corro::table {

/// Thread-safe.
class PageQueue final : public PartSink {
 public:
  // Of the reader. Block while the queue is full.
  [[nodiscard]] Status take_head(const PartHead& head) override;
  [[nodiscard]] Status take_page(Bytes& page) override;
  /// There is nothing more, all being well or not.
  void end(Status status);

  /// Of the taker: returns what end() says, or the first failure of the sink. Blocks until then.
  [[nodiscard]] Status hand_all(PartSink& sink);
  void give_up();

 private:
  using Item = std::variant<PartHead, Bytes>;

  Status put(Item item, Bytes* spare);
  [[nodiscard]] std::optional<Item> next();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;  ///< With the mutex, as what follows.
  std::vector<Bytes> spare_;
  std::optional<Status> end_;
  bool given_up_ = false;
};

}  // namespace corro::table
