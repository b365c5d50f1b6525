#include "pod/head_link.h"

#include <algorithm>

#include "agent/silence.h"

namespace corro::pod {
namespace {

constexpr Duration kPause = std::chrono::milliseconds(250);
constexpr Duration kPatience = std::chrono::seconds(5);  ///< For connection and handshake.

}  // namespace

Result<WayToHead> way_to_head(const PodSettings& settings) {
  if (settings.head.empty())
    return Status(Code::kInvalidArgument, "CORRO_HEAD is not set; corro's operator sets it");
  CORRO_ASSIGN(const io::SocketAddress head, io::SocketAddress::parse(settings.head));
  CORRO_ASSIGN(const secure::Key key, read_own_key(settings));
  CORRO_ASSIGN(secure::Tls tls, secure::Tls::client(settings.identity, key));
  return WayToHead{.address = head, .tls = std::move(tls)};
}

Result<HeadLink::Options> HeadLink::options_of(const PodSettings& settings,
                                               agent::MessageBody first) {
  CORRO_ASSIGN(WayToHead way, way_to_head(settings));
  return Options{.head = way.address,
                 .tls = std::move(way.tls),
                 .job = wire::digest_of(settings.identity.job_uid),
                 .first = std::move(first)};
}

void HeadLink::dial(Time now) {
  dialled_ = now;
  auto socket = io::connect_tcp(options_.head);
  if (!socket.ok()) return drop(socket.status(), now);
  auto stream = options_.tls.open(std::move(*socket));
  if (!stream.ok()) return drop(stream.status(), now);
  tls_ = stream->get();
  pipe_.emplace(std::move(*stream));
  const Status watched = pipe_->watch(loop_, [this] { read(); });
  if (!watched.ok()) return drop(watched, now);
  pipe_->send({{.job = options_.job}, options_.first});
}

void HeadLink::drop(Status why, Time now) {
  close();
  why_ = std::move(why);
  dial_at_ = now + kPause;
}

void HeadLink::close() {
  if (pipe_) pipe_->unwatch(loop_);
  tls_ = nullptr;
  pipe_.reset();
}

/// The parent's epoll set is the child's, too: nothing is taken out of it.
void HeadLink::forget() {
  tls_ = nullptr;
  pipe_.reset();
}

void HeadLink::read() {
  if (!pipe_) return;
  pipe_->flush();
  if (const Status status = pipe_->read(); !status.ok()) why_ = status;
  const Time now = monotonic_now();
  if (is_there()) heard_ = now, last_there_ = now;
}

std::optional<agent::Message> HeadLink::take() { return pipe_ ? pipe_->take() : std::nullopt; }

void HeadLink::tick(Time now) {
  if (pipe_) pipe_->flush_on(loop_);
  if (pipe_ && pipe_->ended()) {
    const Status why = pipe_->failure().ok() ? why_ : pipe_->failure();
    drop(why.ok() ? Status(Code::kUnavailable, "it has ended the connection") : why, now);
  }
  if (is_there()) {
    if (heard_ == Time{}) heard_ = now;
    last_there_ = now;
    if (now >= heard_ + agent::kSilence)
      drop({Code::kDeadlineExceeded, "nothing was heard of it for 10 s"}, now);
  } else if (pipe_ && now >= dialled_ + kPatience) {
    drop({Code::kDeadlineExceeded, "it does not answer"}, now);
  }
  if (!pipe_ && now >= dial_at_) {
    heard_ = Time{};
    dial(now);
  }
}

Time HeadLink::next_timer() const {
  if (!pipe_ || pipe_->ended()) return dial_at_;
  return is_there() ? heard_ + agent::kSilence : dialled_ + kPatience;
}

void HeadLink::send(const agent::Message& message) {
  if (pipe_) pipe_->send(message);
}

agent::MessagePipe HeadLink::release() {
  pipe_->unwatch(loop_);
  agent::MessagePipe pipe = std::move(*pipe_);
  tls_ = nullptr;
  pipe_.reset();
  return pipe;
}

}  // namespace corro::pod
