#include "table/service/page_queue.h"

#include <utility>

namespace corro::table {
namespace {

/// Of pages of a MiB each: enough that neither side waits for a short pause of the other.
constexpr size_t kMostPages = 8;

}  // namespace

Status PageQueue::take_head(const PartHead& head) { return put(head, nullptr); }

Status PageQueue::take_page(Bytes& page) { return put(std::exchange(page, {}), &page); }

/// `spare`: gets memory that is of no use any more.
Status PageQueue::put(Item item, Bytes* spare) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return items_.size() < kMostPages || given_up_; });
  if (given_up_) return {Code::kCancelled, "nobody takes what is read"};
  items_.push_back(std::move(item));
  if (spare != nullptr && !spare_.empty()) {
    *spare = std::move(spare_.back());
    spare_.pop_back();
  }
  changed_.notify_all();
  return {};
}

void PageQueue::end(Status status) {
  const std::scoped_lock lock(mutex_);
  end_ = std::move(status);
  changed_.notify_all();
}

void PageQueue::give_up() {
  const std::scoped_lock lock(mutex_);
  given_up_ = true;
  changed_.notify_all();
}

/// None: there are no more.
std::optional<PageQueue::Item> PageQueue::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !items_.empty() || end_ || given_up_; });
  if (items_.empty() || given_up_) return std::nullopt;
  Item item = std::move(items_.front());
  items_.pop_front();
  changed_.notify_all();
  return item;
}

Status PageQueue::hand_all(PartSink& sink) {
  while (auto item = next()) {
    const PartHead* const head = std::get_if<PartHead>(&*item);
    const Status status =
        head != nullptr ? sink.take_head(*head) : sink.take_page(std::get<Bytes>(*item));
    if (!status.ok()) {
      give_up();
      return status;
    }
    if (head != nullptr) continue;
    const std::scoped_lock lock(mutex_);
    spare_.push_back(std::move(std::get<Bytes>(*item)));
  }
  const std::scoped_lock lock(mutex_);
  return given_up_ ? Status(Code::kCancelled, "given up") : end_.value_or(Status());
}

}  // namespace corro::table
