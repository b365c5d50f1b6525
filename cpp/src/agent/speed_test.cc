#include "agent/speed_test.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "io/socket.h"

namespace corro::agent {
namespace {

constexpr std::byte kPing{'p'};
constexpr std::byte kBulk{'b'};
constexpr size_t kPieceBytes = size_t{256} << 10U;
constexpr int kPieces = 8;           ///< At a time: the agent has other things to do.
constexpr size_t kMostTested = 256;  ///< Callers; the oldest goes.
constexpr Duration kLongestSpan = std::chrono::milliseconds(500);
constexpr size_t kAnswerBytes = 2 * sizeof(uint64_t);

const Bytes& zeros() {
  static const Bytes kZeros(kPieceBytes);
  return kZeros;
}

/// Closes it so that what is still on its way is dropped.
void reset_connection(io::Fd& fd) {
  const linger now{.l_onoff = 1, .l_linger = 0};
  if (fd.valid()) (void)setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  fd.reset();
}

}  // namespace

// -- the side that answers ------------------------------------------------------------------------

Result<std::unique_ptr<SpeedServer>> SpeedServer::create(const SpeedKey& key) {
  CORRO_ASSIGN(io::Epoll epoll, io::Epoll::create());
  return std::unique_ptr<SpeedServer>(new SpeedServer(std::move(epoll), key));
}

SpeedServer::SpeedServer(io::Epoll epoll, const SpeedKey& key)
    : epoll_(std::move(epoll)), key_(key), buffer_(kPieceBytes) {}

void SpeedServer::add(io::Fd fd) {
  if (!epoll_.add(fd.get(), EPOLLIN, static_cast<uint64_t>(fd.get())).ok()) return;
  (void)io::configure_tcp(fd.get());
  callers_.push_back({.fd = std::move(fd)});
  if (callers_.size() <= kMostTested) return;
  epoll_.remove(callers_.front().fd.get());
  callers_.erase(callers_.begin());
}

void SpeedServer::poll() {
  std::array<epoll_event, 64> events{};
  const auto ready = epoll_.wait(events, Duration::zero());
  const size_t number = ready.ok() ? *ready : 0;
  for (size_t i = 0; i < number; ++i) {
    const auto fd = static_cast<int>(events[i].data.u64);
    const auto caller =
        std::ranges::find(callers_, fd, [](const Caller& one) { return one.fd.get(); });
    if (caller == callers_.end() || serve(*caller)) continue;
    epoll_.remove(fd);
    callers_.erase(caller);
  }
}

/// Reads what has come. False: this caller is over.
bool SpeedServer::serve(Caller& caller) {
  using State = Caller::State;
  for (int i = 0; i < kPieces; ++i) {
    size_t wanted = buffer_.size();
    if (caller.state == State::kKey) wanted = sizeof(SpeedKey) - caller.words.size();
    if (caller.state == State::kLetters) wanted = 1;
    if (caller.state == State::kSpan) wanted = sizeof(int64_t) - caller.words.size();
    const auto received = io::receive_message(caller.fd.get(), std::span(buffer_).first(wanted));
    if (received.would_block) return true;
    if (received.closed) return false;
    const BytesView bytes = BytesView(buffer_).first(received.bytes);
    if (caller.state == State::kSending) {
      count(caller, bytes.size(), monotonic_now());
    } else if (caller.state == State::kLetters) {
      if (!take_letter(caller, bytes[0])) return false;
    } else if (caller.state != State::kAnswered && !take_words(caller, bytes)) {
      return false;
    }
  }
  return true;
}

/// The key, or the span.
bool SpeedServer::take_words(Caller& caller, BytesView bytes) const {
  caller.words.insert(caller.words.end(), bytes.begin(), bytes.end());
  const bool is_key = caller.state == Caller::State::kKey;
  if (caller.words.size() < (is_key ? sizeof(SpeedKey) : sizeof(int64_t))) return true;
  const Bytes words = std::exchange(caller.words, {});
  if (is_key) {
    caller.state = Caller::State::kLetters;
    return std::ranges::equal(words, key_);
  }
  caller.state = Caller::State::kSending;
  caller.span = Duration(ByteReader(words).read<int64_t>().value_or(0));
  return caller.span > Duration::zero() && caller.span <= kLongestSpan;
}

bool SpeedServer::take_letter(Caller& caller, std::byte letter) {
  if (letter == kBulk) caller.state = Caller::State::kSpan;
  return letter == kBulk || (letter == kPing && io::send_some(caller.fd.get(), {&letter, 1}).ok());
}

void SpeedServer::count(Caller& caller, size_t bytes, Time now) {
  constexpr int kLeftOut = 4;  // one part of so many
  if (caller.began == Time{}) {
    caller.began = caller.since = now;
  } else if (caller.since == caller.began && now >= caller.began + caller.span / kLeftOut) {
    caller.since = now;
    caller.bytes = 0;
  } else {
    caller.bytes += bytes;
  }
  // On a busy host the first quarter may be over late: what is counted is never shorter than half.
  const Time end = std::max(caller.began + caller.span, caller.since + caller.span / 2);
  if (now < end || caller.bytes == 0) return;
  ByteWriter answer;
  answer.write(caller.bytes);
  answer.write(static_cast<uint64_t>((now - caller.since).count()));
  (void)io::send_some(caller.fd.get(), answer.bytes());
  caller.state = Caller::State::kAnswered;
}

// -- the side that asks ---------------------------------------------------------------------------

Result<std::unique_ptr<SpeedTest>> SpeedTest::create(Options options) {
  const RouteTarget& target = options.target;
  if (target.addresses.empty()) return Status(Code::kInvalidArgument, "no address to dial");
  CORRO_ASSIGN(const auto address, io::SocketAddress::parse_host(
                                       target.addresses[0], static_cast<uint16_t>(target.port)));
  CORRO_ASSIGN(io::Epoll epoll, io::Epoll::create());
  CORRO_ASSIGN(io::Fd fd, io::connect_tcp(address));
  CORRO_TRY(epoll.add(fd.get(), EPOLLIN, 0));
  return std::unique_ptr<SpeedTest>(
      new SpeedTest(std::move(epoll), std::move(fd), std::move(options)));
}

SpeedTest::SpeedTest(io::Epoll epoll, io::Fd fd, Options options)
    : epoll_(std::move(epoll)),
      fd_(std::move(fd)),
      options_(std::move(options)),
      deadline_(monotonic_now() + options_.patience) {}

void SpeedTest::poll() {
  std::array<epoll_event, 1> event{};
  const auto ready = epoll_.wait(event, Duration::zero());
  if (done() || !ready.ok() || *ready == 0) return;
  if ((event[0].events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) read();
  if (state_ == State::kSending) send_bytes();
}

void SpeedTest::read() {
  const size_t wanted = state_ == State::kConnecting ? sizeof(RouteToken)
                        : state_ == State::kPinging  ? 1
                                                     : kAnswerBytes;
  std::array<std::byte, std::max(sizeof(RouteToken), kAnswerBytes)> buffer{};
  const auto received =
      io::receive_message(fd_.get(), std::span(buffer).first(wanted - received_.size()));
  if (received.would_block) return;
  if (received.closed) {
    const int error = received.error;
    return fail(error == 0 ? "it hangs up" : status_from_errno("the connection", error).message());
  }
  received_.insert(received_.end(), buffer.begin(),
                   buffer.begin() + static_cast<std::ptrdiff_t>(received.bytes));
  if (received_.size() < wanted) return;
  if (state_ == State::kConnecting) {
    take_token();
  } else if (state_ == State::kPinging) {
    take_pong();
  } else {
    take_answer();
  }
  received_.clear();
}

void SpeedTest::take_token() {
  if (!std::ranges::equal(received_, options_.target.token))
    return fail("another host answers at its address");
  first_ping_ = monotonic_now();
  ping();
}

/// The first ping brings the key.
void SpeedTest::ping() {
  ByteWriter words;
  if (pings_++ == 0) words.write_bytes(options_.key);
  words.write(static_cast<uint8_t>(kPing));
  state_ = State::kPinging;
  pinged_ = monotonic_now();
  if (const auto sent = io::send_some(fd_.get(), words.bytes()); !sent.ok())
    fail(sent.status().message());
}

void SpeedTest::take_pong() {
  constexpr int kPings = 16;
  constexpr int kLeastPings = 3;
  constexpr int kTrips = 10;  ///< After which TCP sends as fast as it will.
  constexpr Duration kPinging = std::chrono::milliseconds(20);
  const Time now = monotonic_now();
  const Duration trip = now - pinged_;
  result_.round_trip = pings_ == 1 ? trip : std::min(trip, result_.round_trip);
  const bool enough = pings_ >= kPings || (pings_ >= kLeastPings && now >= first_ping_ + kPinging);
  if (!enough) return ping();
  state_ = State::kSending;
  ByteWriter words;
  words.write(static_cast<uint8_t>(kBulk));
  const Duration span = std::max(options_.span, kTrips * result_.round_trip);
  words.write(static_cast<int64_t>(std::min(span, kLongestSpan).count()));
  const auto sent = io::send_some(fd_.get(), words.bytes());
  if (!sent.ok()) return fail(sent.status().message());
  (void)epoll_.modify(fd_.get(), EPOLLIN | EPOLLOUT, 0);
}

void SpeedTest::send_bytes() {
  for (int i = 0; i < kPieces; ++i) {
    const auto sent = io::send_some(fd_.get(), zeros());
    if (!sent.ok()) return;  // Why, the next read says.
    if (*sent < zeros().size()) return;
  }
}

void SpeedTest::take_answer() {
  ByteReader reader(received_);
  result_.bytes = reader.read<uint64_t>().value_or(0);
  result_.span = Duration(static_cast<int64_t>(reader.read<uint64_t>().value_or(0)));
  finish();
}

void SpeedTest::give_up() {
  if (done()) return;
  fail(fmt::format("{} for {} s",
                   state_ == State::kConnecting ? "it does not answer" : "the test is not over",
                   std::chrono::duration<double>(options_.patience).count()));
}

void SpeedTest::fail(const std::string& why) {
  result_ = {.failure = why};
  finish();
}

void SpeedTest::finish() {
  epoll_.remove(fd_.get());
  reset_connection(fd_);
  state_ = State::kDone;
}

}  // namespace corro::agent
