#include "agent/message_pipe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>

namespace corro::agent {
namespace {

void make_nonblocking(int fd) {
  if (fd >= 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

Status end_of_stream() { return {Code::kUnavailable, "the other side has gone"}; }

/// Without `out`, `in` is a socket for both ways.
class FdStream final : public io::ByteStream {
 public:
  FdStream(io::Fd in, io::Fd out) : in_(std::move(in)), out_(std::move(out)) {
    make_nonblocking(in_.get());
    make_nonblocking(out_.get());
  }

  Result<size_t> read(std::span<std::byte> into) override {
    return result_of([&] { return ::read(in_.get(), into.data(), into.size()); }, true);
  }
  Result<size_t> write(BytesView bytes) override {
    return result_of([&] { return ::write(out(), bytes.data(), bytes.size()); }, false);
  }
  [[nodiscard]] int in() const override { return in_.get(); }
  [[nodiscard]] int out() const override { return out_.valid() ? out_.get() : in_.get(); }

 private:
  template <typename Call>
  static Result<size_t> result_of(const Call& call, bool ends_at_zero) {
    ssize_t count = -1;
    do {
      count = call();
    } while (count < 0 && errno == EINTR);
    if (count < 0 && errno == EAGAIN) return size_t{0};
    if (count < 0 || (count == 0 && ends_at_zero)) return end_of_stream();
    return static_cast<size_t>(count);
  }

  io::Fd in_, out_;
};

}  // namespace

MessagePipe::MessagePipe(io::Fd in, io::Fd out)
    : stream_(std::make_unique<FdStream>(std::move(in), std::move(out))) {}

void MessagePipe::send(const Message& message) {
  if (ended_) return;
  enqueue(encode_message(message));
}

void MessagePipe::enqueue(Bytes bytes) {
  queued_ += bytes.size();
  queue_.push_back(std::move(bytes));
  flush();
}

void MessagePipe::flush() {
  while (!queue_.empty() && !ended_) {
    const Bytes& first = queue_.front();
    const auto count = stream_->write(BytesView(first).subspan(written_));
    if (!count.ok()) {
      failure_ = count.status();
      (void)read();  // What the other side has said before it went.
      ended_ = true;
      break;
    }
    if (*count == 0) return;
    written_ += *count;
    if (written_ < first.size()) continue;
    queued_ -= std::exchange(written_, 0);
    queue_.pop_front();
  }
  if (ended_) queue_.clear(), queued_ = 0;
}

Status MessagePipe::watch(io::Loop& loop, const io::Loop::Handler& handler) {
  handler_ = handler;
  return loop.watch(in(), EPOLLIN, handler);
}

void MessagePipe::flush_on(io::Loop& loop) {
  flush();
  if (ended_ || stream_->awaits_room(unsent()) == awaits_room_) return;
  awaits_room_ = !awaits_room_;
  if (out() == in()) {
    (void)loop.change(in(), EPOLLIN | (awaits_room_ ? EPOLLOUT : 0U));
  } else if (awaits_room_) {
    (void)loop.watch(out(), EPOLLOUT, handler_);
  } else {
    loop.forget(out());
  }
}

void MessagePipe::unwatch(io::Loop& loop) {
  loop.forget(in());
  if (awaits_room_ && out() != in()) loop.forget(out());
}

Status MessagePipe::read() {
  std::array<std::byte, size_t{64} << 10U> buffer;  // NOLINT(*-member-init): read into
  while (stream_ != nullptr) {
    const auto count = stream_->read(buffer);
    if (!count.ok()) {
      ended_ = true;
      failure_ = count.status();
      CORRO_TRY(cut());
      return count.status().code() == Code::kUnavailable ? Status() : count.status();
    }
    received_.insert(received_.end(), buffer.begin(),
                     buffer.begin() + static_cast<std::ptrdiff_t>(*count));
    if (*count < buffer.size()) break;
  }
  return cut();
}

void MessagePipe::send_preamble() {
  const BytesView bytes = std::as_bytes(std::span(kPreamble));
  enqueue(Bytes(bytes.begin(), bytes.end()));
}

Status MessagePipe::skip_to_preamble() {
  constexpr size_t kMostBefore = size_t{64} << 10U;
  const std::string_view text(reinterpret_cast<const char*>(received_.data()), received_.size());
  const size_t at = text.find(kPreamble);
  if (at == std::string_view::npos) {
    if (received_.size() < kMostBefore) return {};
    ended_ = true;
    return {Code::kDataLoss, "something else than an agent answers"};
  }
  const auto end = static_cast<std::ptrdiff_t>(at + kPreamble.size());
  received_.erase(received_.begin(), received_.begin() + end);
  expects_preamble_ = false;
  return {};
}

/// Takes whole messages out of what was received.
Status MessagePipe::cut() {
  if (expects_preamble_) CORRO_TRY(skip_to_preamble());
  if (expects_preamble_) return {};
  size_t at = 0;
  Status status;
  while (received_.size() - at >= sizeof(uint32_t)) {
    uint32_t length = 0;
    std::memcpy(&length, received_.data() + at, sizeof(length));
    if (length > kMaxMessageBytes) {
      status = Status(Code::kDataLoss, fmt::format("a message of {} bytes is too long", length));
      break;
    }
    if (received_.size() - at - sizeof(length) < length) break;
    auto message = decode_message(BytesView(received_).subspan(at + sizeof(length), length));
    if (!message.ok()) {
      status = Status(Code::kDataLoss, message.status().message());
      break;
    }
    messages_.push_back(std::move(*message));
    at += sizeof(length) + length;
  }
  received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(at));
  if (!status.ok()) ended_ = true;
  return status;
}

std::optional<Message> MessagePipe::take() {
  if (messages_.empty()) return std::nullopt;
  Message first = std::move(messages_.front());
  messages_.pop_front();
  return first;
}

void MessagePipe::close() {
  ended_ = true;
  queue_.clear();
  queued_ = 0;
  stream_.reset();
}

}  // namespace corro::agent
