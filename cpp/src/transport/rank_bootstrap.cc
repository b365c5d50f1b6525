#include "transport/rank_bootstrap.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <list>
#include <thread>

#include "io/interfaces.h"
#include "transport/mesh_dialer.h"

namespace corro::transport {
namespace {

constexpr Duration kPause = std::chrono::milliseconds(10);

/// Its name says whose job it is; whoever listens there proves to be of this user.
std::string name_of(const RankBootstrapOptions& options) {
  if (!options.name.empty()) return options.name;
  return fmt::format("corro-ranks-{}-{}", geteuid(), wire::to_hex(wire::digest_of(options.job)));
}

/// One place at which the other rank may be, and a dialer for it.
struct Candidate {
  Candidate(const MeshOptions& options, const io::SocketAddress& address, io::Epoll set)
      : place{.record = {}, .tcp = address},
        epoll(std::move(set)),
        dialer(options, place, kStandInRank, epoll, wire::Purpose::kBootstrap, true) {}

  PeerPlace place;
  io::Epoll epoll;
  Dialer dialer;
};

/// Looks for the rank that takes the agent's place.
class Search {
 public:
  explicit Search(const RankBootstrapOptions& options)
      : options_(options),
        mesh_{.rank = options.rank,
              .size = options.size,
              .job = options.job,
              .bootstrap = nullptr,
              .secret = options.secret} {}

  Status start();
  Result<std::unique_ptr<wire::AgentBootstrap>> run();
  [[nodiscard]] const std::string& own_address() const { return own_address_; }

 private:
  Result<std::unique_ptr<wire::AgentBootstrap>> on_this_host();
  Result<std::unique_ptr<wire::AgentBootstrap>> elsewhere();
  [[nodiscard]] Status too_late() const;

  const RankBootstrapOptions& options_;
  const MeshOptions mesh_;
  std::list<Candidate> candidates_;
  std::string own_address_;
};

Status Search::start() {
  std::vector<io::SocketAddress> addresses;
  Status unknown;
  for (const std::string& host : options_.hosts) {
    auto found = io::resolve(host, 0);
    if (!found.ok()) unknown = found.status();
    if (found.ok()) addresses.insert(addresses.end(), found->begin(), found->end());
  }
  if (addresses.empty() && !options_.hosts.empty() && !options_.serves)
    return unknown.with_context("connect");
  for (const io::SocketAddress& address : addresses) {
    for (const uint16_t port : options_.ports) {
      CORRO_ASSIGN(const auto place, io::SocketAddress::parse_host(address.host(), port));
      CORRO_ASSIGN(io::Epoll epoll, io::Epoll::create());
      candidates_.emplace_back(mesh_, place, std::move(epoll));
    }
  }
  return {};
}

Result<std::unique_ptr<wire::AgentBootstrap>> Search::run() {
  while (true) {
    auto found = on_this_host();
    if (!found.ok() || *found != nullptr) return found;
    found = elsewhere();
    if (!found.ok() || *found != nullptr) return found;
    if (monotonic_now() >= options_.deadline) return too_late();
    if (options_.interrupted && options_.interrupted())
      return Status(Code::kCancelled, "connect: interrupted");
    std::this_thread::sleep_for(kPause);
  }
}

/// Null while nobody listens.
Result<std::unique_ptr<wire::AgentBootstrap>> Search::on_this_host() {
  auto found = wire::AgentBootstrap::connect({.name = name_of(options_),
                                              .rank = options_.rank,
                                              .descriptors = {},
                                              .deadline = options_.deadline});
  if (found.status().code() == Code::kUnavailable) return std::unique_ptr<wire::AgentBootstrap>();
  return found;
}

/// Null while nobody has proven to be it.
Result<std::unique_ptr<wire::AgentBootstrap>> Search::elsewhere() {
  const Time now = monotonic_now();
  std::array<epoll_event, 1> event{};
  for (Candidate& candidate : candidates_) {
    CORRO_TRY(candidate.dialer.start_if_due(now));
    CORRO_ASSIGN(const size_t ready, candidate.epoll.wait(event, Duration::zero()));
    if (ready > 0) CORRO_TRY(candidate.dialer.on_event(now));
    auto joined = candidate.dialer.take_joined();
    if (!joined) continue;
    CORRO_ASSIGN(const auto here, io::local_address(joined->socket.get()));
    CORRO_ASSIGN(const auto there, io::remote_address(joined->socket.get()));
    // From its own host any of its addresses leads there, also one that no other host reaches.
    if (here.host() != there.host()) own_address_ = here.host();
    return wire::AgentBootstrap::greet_over(std::move(joined->socket), options_.rank,
                                            options_.secret, options_.deadline);
  }
  return std::unique_ptr<wire::AgentBootstrap>();
}

Status Search::too_late() const {
  const bool several = !options_.hosts.empty();
  std::string tried;
  for (const Candidate& candidate : candidates_) {
    if (!tried.empty()) tried += "; ";
    tried += candidate.dialer.reason();
  }
  return {Code::kDeadlineExceeded,
          fmt::format("connect: rank {} has not found the rank through which all meet{}: start the "
                      "ranks with `corro run`, or set CORRO_BOOTSTRAP=tcp:HOST:PORT with rank 0's "
                      "host and a free port{}",
                      options_.rank,
                      several ? fmt::format(" on {}", fmt::join(options_.hosts, ", ")) : "",
                      tried.empty() ? "" : " (" + tried + ")")};
}

}  // namespace

Result<std::unique_ptr<RankBootstrap>> RankBootstrap::join(const RankBootstrapOptions& options) {
  auto self = std::unique_ptr<RankBootstrap>(new RankBootstrap);
  const bool several = !options.hosts.empty();
  if (options.serves) {
    CORRO_ASSIGN(self->host_,
                 StandInAgent::start({.job = options.job,
                                      .secret = several ? options.secret : wire::random_secret(),
                                      .size = options.size,
                                      .name = name_of(options),
                                      .ports = several ? options.ports : std::vector<uint16_t>()}));
  }
  CORRO_ASSIGN(auto found, find_stand_in(options));
  self->client_ = std::move(found.client);
  self->client_->set_interrupted(options.interrupted);
  self->own_address_ = found.own_address;
  if (!several || !self->own_address_.empty()) return self;
  // On its host: others know by which address they have reached it.
  auto reached = self->client_->get(kReachedKey, options.deadline);
  if (!reached.ok())
    return reached.status().with_context("connect: no rank of another host has come");
  self->own_address_.assign(reinterpret_cast<const char*>(reached->data()), reached->size());
  return self;
}

Result<FoundStandIn> find_stand_in(const RankBootstrapOptions& options) {
  Search search(options);
  CORRO_TRY(search.start());
  FoundStandIn found;
  CORRO_ASSIGN(found.client, search.run());
  found.own_address = search.own_address();
  return found;
}

std::vector<uint16_t> bootstrap_ports(std::string_view job) {
  constexpr uint32_t kFirst = 20000;
  constexpr uint32_t kCount = 12000;
  std::vector<uint16_t> ports;
  const wire::Digest digest = wire::digest_of(job);
  for (size_t i = 0; i < digest.size(); i += 4) {
    uint32_t number = 0;
    std::memcpy(&number, digest.data() + i, sizeof(number));
    ports.push_back(static_cast<uint16_t>(kFirst + number % kCount));
  }
  return ports;
}

}  // namespace corro::transport
