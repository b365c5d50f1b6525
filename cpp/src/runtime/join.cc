#include "runtime/join.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "io/cgroup.h"
#include "io/process.h"
#include "runtime/aggregators.h"
#include "runtime/link_probe.h"
#include "runtime/liveness_links.h"
#include "runtime/rendezvous.h"

namespace corro::runtime {
namespace {

constexpr Duration kDefaultTimeout = std::chrono::seconds(60);

/// The arena's address space: all of the machine's memory. Pages are committed as they are handed
/// out.
size_t arena_bytes() {
  const auto pages = static_cast<size_t>(std::max(sysconf(_SC_PHYS_PAGES), 1L));
  return std::max<size_t>(pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)), size_t{1} << 30U);
}

/// The pid of a rank on this host whose memory this process may read (Yama, seccomp and containers
/// may forbid it), else 0. Large private buffers are staged then.
int32_t readable_pid(const transport::MeshPeer& peer) {
  return peer.local && io::vm_access_permitted(peer.pid) ? peer.pid : 0;
}

/// All ranks are over messages: none shares memory with another one.
bool may_be_served(const Environment& environment, const std::vector<std::string>& hosts) {
  const std::set<std::string> different(hosts.begin(), hosts.end());
  return !environment.agent.empty() && (environment.local_tcp || different.size() == hosts.size());
}

/// Where ranks exchange messages: measures the links of each class, and agrees on how algorithms
/// are chosen. With CORRO_DETERMINISTIC=1 nothing measured may decide what a result is folded from.
Status agree_on_selection(Driver& driver, const Environment& environment,
                          std::vector<collective::SelectionRule> rules,
                          const std::vector<std::string>& hosts, uint32_t epoch, Time deadline) {
  if (!driver.engine().world().by_messages() || hosts.size() == 1) return {};
  // In a group of its own: the operations of the world are the program's, and numbered from 1.
  Result<Group*> group = nullptr;
  driver.call([&group](Engine& engine) {
    group = engine.create_group(engine.world().facts().world_ranks, "corro link probe");
  });
  CORRO_TRY(group.status());
  collective::SelectionTable table{.rules = std::move(rules)};
  const int32_t rank = driver.engine().world().facts().rank;
  const ProbedRanks probed = probed_ranks(hosts);
  for (const auto& [other, link] : {std::pair(probed.same_host, &table.links.same_host),
                                    std::pair(probed.other_host, &table.links.other_host)}) {
    if (environment.deterministic || other < 0) continue;
    if (rank == other) CORRO_TRY(answer_probe(driver, **group, deadline));
    if (rank != 0) continue;
    CORRO_ASSIGN(const auto measured, probe_link(driver, **group, other, deadline));
    *link = measured.value_or(*link);
  }
  CORRO_ASSIGN(table, share_selection(driver, **group, table, deadline));
  std::unique_ptr<collective::ServedLinks> aggregators;
  if (environment.servers > 0 && !environment.ranks_serve && may_be_served(environment, hosts)) {
    auto reached =
        reach_aggregators(environment, rank, static_cast<int32_t>(hosts.size()), deadline);
    CORRO_ASSIGN(aggregators,
                 agree_on_aggregators(driver, **group, std::move(reached), table, epoch, deadline));
  }
  driver.call([&](Engine& engine) {
    (void)engine.destroy_group(**group);
    engine.set_selection(std::move(table));
  });
  if (aggregators != nullptr) driver.serve(std::move(aggregators));
  return {};
}

/// What ends the joining: its caller, or a newer epoch than the one that it joins.
std::function<bool()> interrupted_by(const JoinOptions& options) {
  if (options.epochs == nullptr) return options.interrupted;
  return [&options] {
    if (options.interrupted && options.interrupted()) return true;
    (void)options.epochs->poll();
    return options.epochs->broken_off() > options.epochs->epoch();
  };
}

}  // namespace

Layout layout_of(int32_t rank, const std::vector<std::string>& hosts) {
  Layout layout{.rank = rank,
                .size = static_cast<int32_t>(hosts.size()),
                .local_size = 0,
                .nodes = 0,
                .node_of = {}};
  std::map<std::string_view, int32_t> numbers;
  for (const std::string& host : hosts)
    layout.node_of.push_back(
        numbers.try_emplace(host, static_cast<int32_t>(numbers.size())).first->second);
  layout.nodes = static_cast<int32_t>(numbers.size());
  layout.node_rank = layout.node_of[static_cast<size_t>(rank)];
  for (size_t r = 0; r < hosts.size(); ++r) {
    if (layout.node_of[r] != layout.node_rank) continue;
    if (static_cast<int32_t>(r) == rank) layout.local_rank = layout.local_size;
    ++layout.local_size;
  }
  return layout;
}

Result<Joined> join_job(const Environment& environment, const JoinOptions& options) {
  const int32_t rank = options.rank ? *options.rank : environment.rank.value_or(0);
  const int32_t size = options.size ? *options.size : environment.size.value_or(1);
  if (size < 1 || rank < 0 || rank >= size) {
    return Status(Code::kInvalidArgument,
                  fmt::format("rank {} of {} ranks is impossible", rank, size));
  }
  CORRO_ASSIGN(auto rules, collective::selection_rules_of(environment));
  const Duration timeout = options.timeout.value_or(environment.timeout.value_or(kDefaultTimeout));
  const Time deadline = monotonic_now() + options.join_timeout.value_or(timeout);

  DriverOptions driver;
  driver.engine.rank = rank;
  driver.engine.size = size;
  driver.engine.timeout = timeout;
  driver.engine.deterministic = environment.deterministic;
  driver.engine.commit = environment.commit;
  if (environment.fusion_bytes) driver.engine.fusion.threshold_bytes = *environment.fusion_bytes;
  CORRO_ASSIGN(driver.engine.recorder, obs::FlightRecorder::create({.rank = rank, .size = size}));
  CORRO_ASSIGN(std::shared_ptr<collective::Segment> segment,
               collective::Segment::create(arena_bytes(), driver.engine.recorder->metrics()));
  CORRO_ASSIGN(driver.doorbell, io::EventFd::create());
  JoinOptions asked = options;
  asked.interrupted = interrupted_by(options);
  CORRO_ASSIGN(Rendezvous met, meet(environment, asked, rank, size, *driver.engine.recorder,
                                    {segment->fd(), driver.doorbell.fd()}, deadline));

  std::vector<std::string> hosts;
  driver.engine.segment = segment;
  driver.engine.use_board = !environment.local_tcp;
  // What decides of all other algorithms reaches everybody over few connections.
  driver.engine.selection.rules.push_back(
      {.kind = OpKind::kBroadcast, .algorithm = collective::Algorithm::kBinomial});
  driver.peer_bells.resize(static_cast<size_t>(size));
  driver.peer_pids.resize(static_cast<size_t>(size));
  for (int32_t r = 0; r < size; ++r) {
    const auto i = static_cast<size_t>(r);
    transport::MeshPeer& peer = met.mesh.peers[i];
    EnginePeer known{.where = peer.where,
                     .host = peer.host_id,
                     .segment = nullptr,
                     .stream = nullptr,
                     .pid = readable_pid(peer)};
    hosts.push_back(peer.host_id);
    if (r != rank && peer.local && peer.descriptors.size() == 2) {
      auto segment_of_peer = collective::Segment::attach(std::move(peer.descriptors[0]));
      if (!segment_of_peer.ok()) {
        return segment_of_peer.status().with_context(fmt::format("rank {}: rank {}", rank, r));
      }
      known.segment = std::move(*segment_of_peer);
      driver.peer_bells[i] = std::move(peer.descriptors[1]);
    }
    // Whatever connects them: a rank of this host has a process here that can be watched.
    if (r != rank && peer.local) driver.peer_pids[i] = peer.pid;
    if (r == rank) known.pid = getpid();
    driver.engine.peers.push_back(std::move(known));
  }
  Joined joined;
  joined.layout = layout_of(rank, hosts);
  joined.bootstrap = std::move(met.bootstrap);
  driver.caller_ladder =
      caller_ladder(environment.spin, joined.layout.local_size, io::usable_cores());
  if (joined.layout.nodes > 1) {
    CORRO_ASSIGN(driver.liveness, LivenessLinks::create(*met.mesh.connector, hosts));
  }
  driver.connector = std::move(met.mesh.connector);
  driver.epochs = options.epochs;
  CORRO_ASSIGN(joined.driver, Driver::create(std::move(driver)));
  const uint32_t epoch = options.epochs == nullptr ? 0 : options.epochs->epoch();
  CORRO_TRY(
      agree_on_selection(*joined.driver, environment, std::move(rules), hosts, epoch, deadline));
  return joined;
}

}  // namespace corro::runtime
