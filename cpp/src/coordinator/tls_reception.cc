#include "coordinator/tls_reception.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace corro::coordinator {
namespace {

constexpr Duration kPatience = std::chrono::seconds(10);
constexpr Duration kLastWord = std::chrono::seconds(2);  ///< For one that is refused to hear why.
constexpr size_t kMostCallers = 4096;

}  // namespace

Result<std::unique_ptr<TlsReception>> TlsReception::create(const Options& options) {
  CORRO_ASSIGN(io::Fd listener, io::listen_tcp(options.listen));
  CORRO_ASSIGN(secure::Tls tls, secure::Tls::server(options.find_key));
  return std::unique_ptr<TlsReception>(
      new TlsReception(std::move(listener), std::move(tls), options.version));
}

std::string TlsReception::address() const {
  const auto address = io::local_address(socket_.get());
  return address.ok() ? address->to_string() : "";
}

Status TlsReception::watch(io::Loop& loop, Listener listener) {
  if (loop_ != nullptr) {
    loop_->forget(socket_.get());
    while (!callers_.empty()) close(callers_.begin()->first);
  }
  loop_ = &loop;
  listener_ = std::move(listener);
  return loop.watch(socket_.get(), EPOLLIN, [this] { accept_some(); });
}

void TlsReception::accept_some() {
  while (true) {
    auto accepted = io::accept_connection(socket_.get());
    if (!accepted.ok() || !accepted->valid()) return;
    if (callers_.size() >= kMostCallers) continue;
    (void)io::configure_tcp(accepted->get());
    const auto address = io::remote_address(accepted->get());
    auto stream = tls_.open(std::move(*accepted));
    if (!stream.ok()) continue;
    secure::TlsStream* tls = stream->get();
    const uint64_t number = ++last_;
    const auto [place, added] =
        callers_.emplace(number, Caller{.pipe = agent::MessagePipe(std::move(*stream)),
                                        .tls = tls,
                                        .from = address.ok() ? address->host() : "somebody",
                                        .until = monotonic_now() + kPatience});
    if (!place->second.pipe.watch(*loop_, [this, number] { read(number); }).ok())
      callers_.erase(place);
  }
}

void TlsReception::read(uint64_t number) {
  const auto found = callers_.find(number);
  if (found == callers_.end()) return;
  Caller& caller = found->second;
  caller.pipe.flush();
  const Status status = caller.pipe.read();
  const auto message = caller.pipe.take();
  const bool is_stranger = !status.ok() && caller.tls != nullptr && !caller.tls->is_proved();
  if (is_stranger && status.code() != Code::kUnavailable)
    note_refusal(caller.from, status.message());
  if (message && !caller.refused) {
    const auto* hello = std::get_if<agent::Hello>(&message->body);
    if (hello == nullptr) return close(number);
    const Status fits = check(caller, *hello);
    Dialled dialled{.hello = *hello,
                    .job = message->about.job,
                    .generation = caller.tls->peer() ? caller.tls->peer()->generation : 0,
                    .pipe = std::move(caller.pipe)};
    dialled.pipe.unwatch(*loop_);
    callers_.erase(found);
    return fits.ok() ? listener_(std::move(dialled)) : refuse(std::move(dialled), fits);
  }
  if (caller.pipe.ended()) return close(number);
  caller.pipe.flush_on(*loop_);
}

/// Once: it dials each second.
void TlsReception::note_refusal(const std::string& from, const std::string& why) {
  constexpr size_t kMostNoted = 256;
  if (refusals_.size() >= kMostNoted || !refusals_.emplace(from, why).second) return;
  fmt::print(stderr, "corro coordinator: {} is refused: {}; do both have the same secret?\n", from,
             why);
}

/// Whether it can be an agent of the job.
Status TlsReception::check(const Caller& caller, const agent::Hello& hello) const {
  constexpr Code kRefusal = Code::kFailedPrecondition;
  const auto& who = caller.tls->peer();
  if (!who || who->member != hello.host)
    return {kRefusal, "it has proved to be another host's agent"};
  if (hello.version != agent::kMessagesVersion || hello.corro != version_)
    return {kRefusal, fmt::format("it has corro {}, the coordinator {}; install the same on both",
                                  hello.corro, version_)};
  return hello.slots > 0 ? Status() : Status(kRefusal, "it offers no slots");
}

void TlsReception::refuse(Dialled dialled, const Status& why) {
  const uint64_t number = ++last_;
  const auto [place, added] = callers_.emplace(number, Caller{.pipe = std::move(dialled.pipe),
                                                              .tls = nullptr,
                                                              .from = dialled.hello.host,
                                                              .until = monotonic_now() + kLastWord,
                                                              .refused = true});
  agent::MessagePipe& pipe = place->second.pipe;
  if (!pipe.watch(*loop_, [this, number] { read(number); }).ok()) {
    callers_.erase(place);
    return;
  }
  pipe.send({{}, agent::Refused{.code = why.code(), .why = why.message()}});
  pipe.flush_on(*loop_);
}

void TlsReception::close(uint64_t number) {
  const auto found = callers_.find(number);
  found->second.pipe.unwatch(*loop_);
  callers_.erase(found);
}

void TlsReception::tick(Time now) {
  std::vector<uint64_t> late;
  for (auto& [number, caller] : callers_) {
    if (!caller.pipe.ended()) caller.pipe.flush_on(*loop_);
    if (caller.pipe.ended() || now >= caller.until) late.push_back(number);
  }
  for (const uint64_t number : late) close(number);
}

Time TlsReception::due() const {
  Time due = Time::never();
  for (const auto& [number, caller] : callers_) due = std::min(due, caller.until);
  return due;
}

}  // namespace corro::coordinator
