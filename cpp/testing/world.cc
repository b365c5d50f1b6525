#include "testing/world.h"

#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <tuple>

namespace corro::testing {
namespace {

constexpr Duration kTick = std::chrono::microseconds(100);
constexpr int kQuietRounds =
    64;  ///< Rounds without movement before time jumps to the next deadline.

}  // namespace

std::vector<int32_t> hosts_of(std::string_view text) {
  std::vector<int32_t> hosts;
  for (const char host : text) hosts.push_back(host - '0');
  return hosts;
}

collective::SelectionTable two_level_everywhere() {
  return {.rules = collective::parse_selection_rules(kTwoLevelEverywhere).value()};
}

World::World(const WorldOptions& options)
    : options_(options), random_(options.seed), live_(static_cast<size_t>(options.size), true) {
  const auto ranks = static_cast<size_t>(options.size);
  for (size_t r = 0; r < ranks; ++r)
    segments_.push_back(collective::Segment::create(options.heap_bytes).value());
  std::vector<std::vector<std::unique_ptr<transport::Stream>>> streams(ranks);
  for (auto& row : streams) row.resize(ranks);
  for (size_t a = 0; a < ranks; ++a) {
    for (size_t b = a + 1; b < ranks; ++b) std::tie(streams[a][b], streams[b][a]) = connect(a, b);
  }
  for (size_t r = 0; r < ranks; ++r) {
    runtime::EngineOptions engine = options_of(r, options.size);
    for (size_t p = 0; p < ranks; ++p) engine.peers.push_back(peer(r, p, std::move(streams[r][p])));
    engines_.push_back(runtime::Engine::create(std::move(engine)).value());
  }
  if (options.aggregators > 0) add_aggregators();
}

void World::add_aggregators() {
  for (int32_t i = 0; i < options_.aggregators; ++i)
    aggregators_.push_back(std::make_unique<collective::Aggregator>());
  for (int32_t rank = 0; rank < size(); ++rank) {
    std::vector<std::unique_ptr<transport::Stream>> streams;
    for (const auto& aggregator : aggregators_) {
      auto pair = transport::make_memory_pair({.capacity = options_.stream_bytes,
                                               .short_moves = options_.short_moves,
                                               .seed = random_()});
      streams.push_back(std::move(pair.first));
      aggregator->admit(rank, std::move(pair.second));
    }
    engine(rank).serve(std::make_unique<collective::ServedLinks>(
        std::move(streams), collective::ServedGroup{.size = size(), .rank = rank},
        engine(rank).recorder().metrics()));
  }
}

runtime::EngineOptions World::options_of(size_t rank, int32_t size) const {
  return {.rank = static_cast<int32_t>(rank),
          .size = size,
          .timeout = options_.timeout,
          .use_board = options_.board,
          .segment = segments_[rank],
          .peers = {},
          .wake = [](int32_t) {},
          .selection = options_.selection,
          .fusion = options_.fusion,
          .deterministic = options_.deterministic,
          .commit = options_.commit};
}

int32_t World::host_of(size_t member) const {
  return member < options_.hosts.size() ? options_.hosts[member] : 0;
}

runtime::EnginePeer World::peer(size_t of, size_t member,
                                std::unique_ptr<transport::Stream> stream) const {
  return {.where = "in this process",
          .host = std::to_string(host_of(member)),
          .segment = options_.board && host_of(of) == host_of(member) ? segments_[member] : nullptr,
          .stream = std::move(stream),
          .pid = options_.private_reads ? getpid() : 0};
}

World::Ends World::connect(size_t a, size_t b) {
  auto pair = transport::make_memory_pair(
      {.capacity = options_.stream_bytes, .short_moves = options_.short_moves, .seed = random_()});
  links_[{a, b}] = std::move(pair.link);
  return {std::move(pair.first), std::move(pair.second)};
}

int32_t World::add_engine() {
  const size_t added = engines_.size();
  segments_.push_back(collective::Segment::create(options_.heap_bytes).value());
  // Its world is itself until an epoch says more.
  runtime::EngineOptions engine = options_of(0, 1);
  engine.segment = segments_[added];
  engine.members = {static_cast<int32_t>(added)};
  engine.peers.push_back(peer(added, added, nullptr));
  engines_.push_back(runtime::Engine::create(std::move(engine)).value());
  live_.push_back(true);
  for (size_t p = 0; p < added; ++p) {
    if (!live_[p]) continue;
    auto [first, second] = connect(p, added);
    engines_[p]->peers().add(static_cast<int32_t>(added), peer(p, added, std::move(first)));
    engines_[added]->peers().add(static_cast<int32_t>(p), peer(added, p, std::move(second)));
  }
  return static_cast<int32_t>(added);
}

void World::start_epoch(uint32_t epoch, const std::vector<int32_t>& members) {
  for (const int32_t member : members) {
    const Status started = engine(member).start_epoch(epoch, members);
    CORRO_CHECK(started.ok(), started.message());
  }
}

World::~World() = default;

std::shared_ptr<runtime::WorkState> World::submit(int32_t rank,
                                                  std::vector<collective::OpRequest> requests) {
  return submit(engine(rank), engine(rank).world(), std::move(requests));
}

std::shared_ptr<runtime::WorkState> World::submit(runtime::Engine& engine, runtime::Group& group,
                                                  std::vector<collective::OpRequest> requests) {
  auto work = std::make_shared<runtime::WorkState>(std::move(requests));
  engine.submit(group, work, now_);
  return work;
}

bool World::poll_once() {
  std::vector<size_t> order(engines_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), random_);
  bool moved = false;
  for (const size_t r : order) {
    const bool rests = options_.rests && engines_[r]->idle();
    if (live_[r] && !rests) moved = engines_[r]->poll(now_) || moved;
  }
  for (const auto& aggregator : aggregators_) {
    if (aggregators_paused_) break;
    moved = (aggregator != nullptr && aggregator->poll()) || moved;
  }
  return moved;
}

/// As processes before they sleep: everything once more, whatever could be left out; several times,
/// since a stream with short moves may move nothing at first.
bool World::last_look() {
  for (int i = 0; i < 16; ++i) {
    for (size_t r = 0; r < engines_.size(); ++r) {
      if (!live_[r]) continue;
      engines_[r]->set_sleeping(true);
      engines_[r]->set_sleeping(false);
    }
    if (poll_once()) return true;
  }
  return false;
}

void World::poll_rounds(int rounds) {
  for (int i = 0; i < rounds; ++i) (void)poll_once();
}

void World::run(const Works& works) {
  int quiet = 0;
  const auto all_done = [&works] {
    return std::all_of(works.begin(), works.end(), [](const auto& work) { return work->done(); });
  };
  while (!all_done()) {
    if (poll_once()) {
      quiet = 0;
      continue;
    }
    now_ = now_ + kTick;
    if (++quiet < kQuietRounds) continue;
    quiet = 0;
    if (last_look()) continue;
    Time next = Time::never();
    for (size_t r = 0; r < engines_.size(); ++r) {
      if (live_[r]) next = std::min(next, engines_[r]->next_deadline());
    }
    CORRO_CHECK(next != Time::never(),
                "the world stands still: nothing moves and no deadline is left");
    now_ = std::max(now_, next);
  }
}

std::vector<Status> World::run_all(const std::function<collective::OpRequest(int32_t)>& make) {
  Works works;
  for (int32_t r = 0; r < size(); ++r) {
    if (live_[static_cast<size_t>(r)]) works.push_back(submit(r, {make(r)}));
  }
  run(works);
  std::vector<Status> results;
  results.reserve(works.size());
  for (const auto& work : works) results.push_back(work->status());
  return results;
}

void World::kill(int32_t rank, bool told) {
  live_[static_cast<size_t>(rank)] = false;
  for (auto& [ends, link] : links_) {
    if (ends.first == static_cast<size_t>(rank) || ends.second == static_cast<size_t>(rank)) {
      link->sever("connection reset");
    }
  }
  for (int32_t r = 0; r < size(); ++r) {
    if (told && live_[static_cast<size_t>(r)]) engine(r).peer_ended(rank, "its process has ended");
  }
}

}  // namespace corro::testing
