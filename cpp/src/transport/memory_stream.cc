#include "transport/memory_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace corro::transport {
namespace {

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
uint64_t next_random(uint64_t& state) {
  uint64_t z = (state += 0x9E3779B97F4A7C15ULL);
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31U);
}

}  // namespace

MemoryPipe::MemoryPipe(const MemoryOptions& options, uint64_t seed)
    : options_(options), random_state_(seed), ring_(options.capacity) {
  CORRO_CHECK(options.capacity > 0);
  CORRO_CHECK(!options.delay || options.now, "a delay needs a clock");
}

void MemoryPipe::hold() { released_ = std::min(released_, written_); }

void MemoryPipe::release(uint64_t bytes) {
  constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();
  released_ = bytes > kAll - released_ ? kAll : released_ + bytes;
}

void MemoryPipe::break_after(uint64_t bytes, std::string reason) {
  break_at_ = written_ + bytes;
  break_reason_ = std::move(reason);
}

std::optional<Time> MemoryPipe::next_delivery() const {
  for (const Arrival& arrival : arrivals_) {
    if (arrival.end <= read_) continue;
    return read_ < released_ ? std::optional(arrival.at) : std::nullopt;
  }
  return std::nullopt;
}

uint64_t MemoryPipe::part_of(uint64_t bytes) {
  if (!options_.short_moves || bytes == 0) return bytes;
  return next_random(random_state_) % (bytes + 1);
}

size_t MemoryPipe::write(std::span<const iovec> pieces) {
  uint64_t room = std::min<uint64_t>(ring_.size() - in_flight(), total_size(pieces));
  room = part_of(std::min(room, break_at_ - written_));
  uint64_t left = room;
  for (const iovec& piece : pieces) {
    const auto* from = static_cast<const std::byte*>(piece.iov_base);
    for (size_t at = 0; at < piece.iov_len && left > 0;) {
      const size_t slot = written_ % ring_.size();
      const size_t run = std::min({piece.iov_len - at, ring_.size() - slot, size_t{left}});
      std::memcpy(ring_.data() + slot, from + at, run);
      at += run;
      written_ += run;
      left -= run;
    }
  }
  if (options_.delay && room > 0) {
    Time at = options_.now() + options_.delay(room);
    if (!arrivals_.empty()) at = std::max(at, arrivals_.back().at);
    arrivals_.push_back({written_, at});
  }
  return room;
}

uint64_t MemoryPipe::deliverable() {
  uint64_t end = std::min(written_, released_);
  if (options_.delay) {
    const Time now = options_.now();
    uint64_t arrived = read_;
    for (const Arrival& arrival : arrivals_) {
      if (arrival.at > now) break;
      arrived = std::max(arrived, arrival.end);
    }
    end = std::min(end, arrived);
  }
  return end - read_;
}

size_t MemoryPipe::read(std::span<const iovec> pieces) {
  const uint64_t count = part_of(std::min(deliverable(), total_size(pieces)));
  uint64_t left = count;
  for (const iovec& piece : pieces) {
    auto* into = static_cast<std::byte*>(piece.iov_base);
    for (size_t at = 0; at < piece.iov_len && left > 0;) {
      const size_t slot = read_ % ring_.size();
      const size_t run = std::min({piece.iov_len - at, ring_.size() - slot, size_t{left}});
      std::memcpy(into + at, ring_.data() + slot, run);
      at += run;
      read_ += run;
      left -= run;
    }
  }
  while (!arrivals_.empty() && arrivals_.front().end <= read_) arrivals_.pop_front();
  return count;
}

MemoryLink::MemoryLink(const MemoryOptions& options)
    : to_first_(options, options.seed * 2), to_second_(options, options.seed * 2 + 1) {}

void MemoryLink::sever(std::string reason) {
  if (closed_) return;
  closed_ = true;
  reason_ = std::move(reason);
}

/// One end. Which end it is decides which pipe it reads.
class MemoryStream final : public Stream {
 public:
  MemoryStream(std::shared_ptr<MemoryLink> link, int side) : link_(std::move(link)), side_(side) {}
  ~MemoryStream() override { close(); }

  Moved write(std::span<const iovec> pieces) override {
    if (closed_ || link_->closed_) return {.bytes = 0, .closed = true};
    MemoryPipe& pipe = link_->toward(1 - side_);
    const size_t bytes = pipe.write(pieces);
    if (pipe.written_ == pipe.break_at_) link_->sever(pipe.break_reason_);
    return {.bytes = bytes, .closed = link_->closed_};
  }

  Moved read(std::span<const iovec> pieces) override {
    if (closed_) return {.bytes = 0, .closed = true};
    MemoryPipe& pipe = link_->toward(side_);
    const size_t bytes = pipe.read(pieces);
    return {.bytes = bytes, .closed = link_->closed_ && pipe.in_flight() == 0};
  }

  [[nodiscard]] int poll_fd() const override { return -1; }

  void close() override {
    closed_ = true;
    link_->sever("closed by the other end");
  }

  [[nodiscard]] std::string describe() const override {
    const std::string where = side_ == 0 ? "memory end 0" : "memory end 1";
    return link_->closed_ ? where + ": " + link_->reason_ : where;
  }

 private:
  std::shared_ptr<MemoryLink> link_;  ///< With the other end and the test.
  const int side_;
  bool closed_ = false;
};

MemoryPair make_memory_pair(const MemoryOptions& options) {
  auto link = std::make_shared<MemoryLink>(options);
  return {.first = std::make_unique<MemoryStream>(link, 0),
          .second = std::make_unique<MemoryStream>(link, 1),
          .link = link};
}

}  // namespace corro::transport
