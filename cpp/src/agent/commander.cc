#include "agent/commander.h"

#include <fmt/format.h>

#include <utility>

#include "diagnosis/flight_text.h"

namespace corro::agent {
namespace {

constexpr Duration kPatience = std::chrono::seconds(3);  ///< For connection, handshake and LEAD.

bool is_output(const Message& message) {
  return std::holds_alternative<Output>(message.body) ||
         std::holds_alternative<OutputEnd>(message.body);
}

size_t bytes_of(const Message& message) {
  const auto* output = std::get_if<Output>(&message.body);
  return output == nullptr ? 0 : output->bytes.size();
}

}  // namespace

Status Commander::watch(io::Loop& loop, io::Loop::Handler handler) {
  loop_ = &loop;
  handler_ = std::move(handler);
  return pipe_ ? pipe_->watch(loop, handler_) : Status();
}

void Commander::tick(const Message& hello, Time now) {
  if (!how_) return;
  if (pipe_ && pipe_->ended()) return drop(why(), now);
  if (met_ || now < due_) return;
  pipe_ ? drop("it does not answer", now) : dial(hello, now);
}

Time Commander::due() const { return how_ && !met_ ? due_ : Time::never(); }

void Commander::dial(const Message& hello, Time now) {
  auto pipe = how_->dial(address());
  if (!pipe.ok()) return drop(pipe.status().message(), now);
  pipe_ = std::move(*pipe);
  due_ = now + kPatience;
  if (const Status status = pipe_->watch(*loop_, handler_); !status.ok())
    return drop(status.message(), now);
  pipe_->send(hello);
}

void Commander::meet(uint64_t term) {
  met_ = true;
  was_met_ = true;
  note(fmt::format("leads in term {}", term));
}

std::string Commander::all_addresses() const {
  return fmt::format("{}", fmt::join(how_->addresses, ", "));
}

void Commander::remind() const {
  how_->note(fmt::format("cannot reach the {} at {}: {}", how_->called, all_addresses(), lost_by_));
}

void Commander::give_up() {
  if (how_->on_give_up) {
    how_->on_give_up(fmt::format("the {} at {} {} for {}: {}", how_->called, all_addresses(),
                                 was_met_ ? "was lost and did not come back" : "was never reached",
                                 diagnosis::format_span(how_->patience), lost_by_));
  }
  how_->note(fmt::format("nobody has led for {} s: all ranks of this host are ended",
                         std::chrono::duration_cast<std::chrono::seconds>(how_->patience).count()));
}

void Commander::drop(const std::string& why, Time now) {
  hang_up(why);
  due_ = now + kDialPause;
  ++dials_;
}

void Commander::refuse(const std::string& why, bool waits, Time now) {
  hang_up(why);
  due_ = now + kRefusedPause;
  if (!waits) ++dials_;
}

void Commander::hang_up(const std::string& why) {
  if (pipe_) pipe_->unwatch(*loop_);
  pipe_.reset();
  met_ = false;
  lost_by_ = why;
  note(why);
}

/// The same is not said twice.
void Commander::note(const std::string& line) {
  if (std::exchange(noted_[address()], line) != line)
    how_->note(fmt::format("{} {}: {}", how_->called, how_->addresses[address()], line));
}

Status Commander::read() {
  if (!pipe_) return {Code::kUnavailable, "there is no connection"};
  pipe_->flush();
  return pipe_->read();
}

std::string Commander::why() const {
  if (!pipe_ || pipe_->failure().ok()) return "it has ended the connection";
  const Status& failure = pipe_->failure();
  const bool is_stranger = failure.code() == Code::kUnauthenticated;
  return failure.message() + (is_stranger ? "; do both have the same secret?" : "");
}

void Commander::send(const Message& message) { met_ ? pipe_->send(message) : keep(message); }

void Commander::keep(const Message& message) {
  if (!is_output(message)) return;
  kept_.push_back(message);
  kept_bytes_ += bytes_of(message);
  while (kept_bytes_ > kOutputCredit) {
    const size_t oldest = bytes_of(kept_.front());
    kept_bytes_ -= oldest;
    lost_bytes_ += oldest;
    kept_.pop_front();
  }
}

size_t Commander::send_kept() {
  if (lost_bytes_ > 0) {
    pipe_->send({{.job = kept_.front().about.job, .epoch = kept_.front().about.epoch},
                 Trouble{fmt::format(
                     "{} bytes that ranks on {} have printed are lost: no coordinator was there",
                     std::exchange(lost_bytes_, 0), how_->host)}});
  }
  for (const Message& message : kept_) pipe_->send(message);
  kept_.clear();
  return std::exchange(kept_bytes_, 0);
}

}  // namespace corro::agent
