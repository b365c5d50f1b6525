#include "runtime/aggregators.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <thread>

#include "io/socket.h"
#include "transport/tcp_stream.h"
#include "wire/agent_bootstrap.h"
#include "wire/server_number.h"

namespace corro::runtime {
namespace {

/// Servers start before ranks; who has not said where it is by then is done without.
constexpr Duration kFindPatience = std::chrono::seconds(5);
constexpr Duration kDialPatience = std::chrono::seconds(2);
/// One that has too many strangers turns the oldest away: it has known some of them a moment later.
/// On a machine with much to do it may not have answered.
constexpr int kDials = 5;
constexpr auto kBetweenDials = std::chrono::milliseconds(50);

Status shake_hands(int fd, wire::ClientHandshake& handshake, Time deadline) {
  std::array<std::byte, wire::kChallengeBytes> buffer{};
  while (true) {
    if (const Bytes output = handshake.take_output(); !output.empty()) {
      CORRO_ASSIGN(const bool sent, io::send_message(fd, output));
      if (!sent) return {Code::kUnavailable, "takes nothing"};
    }
    if (handshake.done()) return {};
    if (!io::wait_ready(fd, POLLIN, deadline)) return {Code::kDeadlineExceeded, "no answer"};
    const io::Received received =
        io::receive_message(fd, std::span(buffer).first(handshake.wanted()));
    if (received.closed) return {Code::kUnavailable, "hung up"};
    CORRO_TRY(handshake.feed(std::span(buffer).first(received.bytes)));
  }
}

Result<io::Fd> dial(const io::SocketAddress& address, wire::ClientHandshake handshake,
                    Time deadline) {
  CORRO_ASSIGN(io::Fd fd, io::connect_tcp(address, {.detect_lost_host = true}));
  if (!io::wait_ready(fd.get(), POLLOUT, deadline))
    return Status(Code::kDeadlineExceeded, "no answer");
  CORRO_TRY(io::connect_result(fd.get()));
  CORRO_TRY(shake_hands(fd.get(), handshake, deadline));
  return fd;
}

Result<io::Fd> dial_again(const io::SocketAddress& address, const wire::ClientHandshake& handshake,
                          Time deadline) {
  for (int dials = 1;; ++dials) {
    auto dialled = dial(address, handshake, std::min(deadline, monotonic_now() + kDialPatience));
    const Code code = dialled.status().code();
    const bool may_answer = code == Code::kUnavailable || code == Code::kDeadlineExceeded;
    if (!may_answer || dials == kDials || monotonic_now() + kBetweenDials >= deadline)
      return dialled;
    std::this_thread::sleep_for(kBetweenDials);
  }
}

std::string host_of(const io::SocketAddress& address) {
  const std::string text = address.to_string();
  return text.substr(0, text.rfind(':'));
}

/// All servers of the job, as one rank dials them.
class Search {
 public:
  Search(const Environment& environment, wire::AgentBootstrap& agent, int32_t rank, int32_t size)
      : environment_(environment),
        agent_(agent),
        identity_{.job = wire::digest_of(agent.job()), .epoch = 0, .rank = rank, .size = size} {}

  /// Each rank begins with another one, so that all do not come to one at once.
  ReachedAggregators reach_all(Time deadline) {
    const int32_t servers = environment_.servers;
    ReachedAggregators reached;
    reached.streams.resize(static_cast<size_t>(servers));
    reached.reach.resize(reached.streams.size(), Reach::kNone);
    hosts_.resize(reached.streams.size());
    for (int32_t i = 0; i < servers && monotonic_now() < deadline; ++i) {
      const int32_t server = (identity_.rank + i) % servers;
      const auto index = static_cast<size_t>(server);
      reached.streams[index] = reach_one(server, reached.reach[index], deadline);
    }
    for (size_t i = 0; i < hosts_.size(); ++i) {
      const auto before = std::span(hosts_).first(i);
      const bool is_first = std::ranges::find(before, hosts_[i]) == before.end();
      if (!is_first) reached.reach[i] = std::min(reached.reach[i], Reach::kSameHost);
    }
    return reached;
  }

 private:
  std::unique_ptr<transport::Stream> reach_one(int32_t server, Reach& reach, Time deadline) {
    const auto found = agent_.get(wire::server_key(agent_.job(), server), deadline);
    if (!found.ok()) return nullptr;
    const auto address = io::SocketAddress::parse(
        std::string(reinterpret_cast<const char*>(found->data()), found->size()));
    if (!address.ok()) return nullptr;
    auto dialled = dial_again(*address,
                              wire::ClientHandshake(identity_, wire::kFirstServer + server,
                                                    *agent_.secret(), wire::Purpose::kServed),
                              deadline);
    if (!dialled.ok()) return nullptr;
    const auto own = io::local_address(dialled->get());
    const std::string host = host_of(*address);
    hosts_[static_cast<size_t>(server)] = host;
    reach = !own.ok() || host_of(*own) == host ? Reach::kSameHost : Reach::kOtherHost;
    return std::make_unique<transport::TcpStream>(std::move(dialled).value());
  }

  const Environment& environment_;
  wire::AgentBootstrap& agent_;
  const wire::HandshakeIdentity identity_;
  std::vector<std::string> hosts_;  ///< By server; "" for one that was not reached.
};

bool asks_for_servers(const collective::SelectionTable& table) {
  return std::ranges::any_of(table.rules, [](const collective::SelectionRule& rule) {
    return rule.algorithm == collective::Algorithm::kServed;
  });
}

}  // namespace

ReachedAggregators reach_aggregators(const Environment& environment, int32_t rank, int32_t size,
                                     Time deadline) {
  if (environment.servers == 0) return {};
  // Half of the time is left for what ranks have to agree on then.
  const Duration left = std::max(deadline - monotonic_now(), Duration::zero());
  const Time until = monotonic_now() + std::min(left / 2, kFindPatience);
  const auto agent = wire::AgentBootstrap::connect(
      {.name = environment.agent, .rank = wire::kReader, .deadline = until});
  if (agent.ok()) return Search(environment, **agent, rank, size).reach_all(until);
  ReachedAggregators none;
  none.streams.resize(static_cast<size_t>(environment.servers));
  none.reach.resize(none.streams.size());
  return none;
}

Result<std::unique_ptr<collective::ServedLinks>> agree_on_aggregators(
    Driver& driver, Group& group, ReachedAggregators reached,
    const collective::SelectionTable& table, uint32_t epoch, Time deadline) {
  auto* const reach = reinterpret_cast<std::byte*>(reached.reach.data());
  CORRO_TRY(driver.run(group, {.kind = OpKind::kAllreduce,
                               .dtype = DType::kI32,
                               .reduce_op = ReduceOp::kMin,
                               .input = reach,
                               .output = reach,
                               .count = reached.reach.size(),
                               .timeout = std::max(deadline - monotonic_now(), Duration(1)),
                               .name = "agrees on aggregators"}));
  const Reach least = asks_for_servers(table) ? Reach::kSameHost : Reach::kOtherHost;
  std::vector<std::unique_ptr<transport::Stream>> streams;
  for (size_t i = 0; i < reached.streams.size(); ++i)
    if (reached.reach[i] >= least) streams.push_back(std::move(reached.streams[i]));
  if (streams.empty()) return std::unique_ptr<collective::ServedLinks>();
  const GroupFacts& facts = group.facts();
  return std::make_unique<collective::ServedLinks>(
      std::move(streams),
      collective::ServedGroup{.epoch = epoch, .size = facts.size(), .rank = facts.rank},
      driver.engine().recorder().metrics());
}

}  // namespace corro::runtime
