// Ranks and table servers in one thread, whose messages a random order delivers: connections break
// at any message, servers are lost, are asked to leave, and others come, rows are copied, and asked
// for ahead, and snapshots are written meanwhile. Whatever happens, all ranks read what their table's
// mode allows (history_checker.h), and whoever reads a snapshot has the rows of its step.
#include "table/service/worker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <set>

#include "base/sanitized.h"
#include "table/service/history_checker.h"
#include "table/service/service.h"

namespace corro::table {
namespace {

constexpr size_t kTestShards = 8;
constexpr uint64_t kKeys = 24;
constexpr size_t kTroubledTurns = 20'000;
constexpr size_t kMoveBytes = 60;  ///< Two or three rows.

/// A table whose rows depend on all of their history; in async mode, sums.
TableSpec spec_of_test(Mode mode, uint32_t staleness, uint32_t evict_after) {
  TableSpec spec{.name = "t", .dim = 1, .mode = mode, .staleness = staleness};
  if (mode == Mode::kAsync) {
    spec.optimizer.lr = 1;
    return spec;
  }
  spec.optimizer = {.kind = OptimizerKind::kAdam, .lr = 0.1F};
  spec.initial = {.kind = InitialKind::kUniform, .low = -1, .high = 1};
  spec.retention.idle_steps = evict_after;
  return spec;
}

/// Whole numbers, for sums that are exact.
Batch draw(std::minstd_rand& random) {
  Batch batch;
  batch.ids.resize(random() % 8);
  for (uint64_t& id : batch.ids) {
    id = random() % kKeys;
    batch.gradients.push_back(static_cast<float>(random() % 2001) - 1000);
  }
  return batch;
}

std::vector<uint64_t> draw_ids(std::minstd_rand& random) {
  std::vector<uint64_t> ids(random() % (2 * kKeys));
  for (uint64_t& id : ids) id = random() % kKeys;
  return ids;
}

Header header_of(const Bytes& message) {
  std::array<std::byte, kHeaderBytes> raw{};
  std::copy_n(message.begin(), raw.size(), raw.begin());
  return decode_header(raw).value();
}
/// Aligned, as where it has arrived.
Bytes arrived_body(const Bytes& message) {
  return {message.begin() + static_cast<ptrdiff_t>(kHeaderBytes), message.end()};
}

/// Parts of snapshots, by attempt and part. What was given up stays, and is no part.
class MemoryStore final : public SnapshotStore {
 public:
  struct Part {
    PartHead head;
    std::optional<checkpoint::Base> base = {};
    std::vector<Bytes> pages = {};
    bool whole = false;
  };

  std::unique_ptr<PartWriter> begin(const Save& save, const PartHead& head) override {
    auto& part = parts_[{save.attempt, save.part}];
    part = std::make_shared<Part>(Part{.head = head, .base = save.base});
    return std::make_unique<Writer>(part);
  }
  std::unique_ptr<RowsLoading> begin_load(const std::string&, uint64_t,
                                          const LoadOptions&) override {
    ADD_FAILURE() << "nobody asks";
    return nullptr;
  }
  /// The rows of a snapshot whose parts are all there, and of those on which it builds: the whole one
  /// first.
  [[nodiscard]] std::vector<float> rows_of(const TableSpec& spec,
                                           const std::vector<TableWorker::Written>& chain) const {
    std::vector<uint64_t> steps;
    for (const TableWorker::Written& written : chain) steps.push_back(written.step);
    RowLoader loader = RowLoader::create({.spec = spec, .shards = ShardSet().set()}, steps).value();
    for (const TableWorker::Written& written : chain) {
      for (uint32_t number = 0; number < written.parts; ++number) {
        const Part& part = *parts_.at({written.attempt, number});
        EXPECT_TRUE(part.whole);
        EXPECT_EQ(part.base.has_value(), written.step != steps.front());
        EXPECT_TRUE(loader.take_head(part.head).ok());
        for (Bytes page : part.pages) EXPECT_TRUE(loader.take_page(page).ok());
      }
    }
    std::vector<uint64_t> keys(kKeys);
    for (uint64_t key = 0; key < kKeys; ++key) keys[key] = key;
    std::vector<float> values(kKeys);
    EXPECT_TRUE(loader.take()->pull(keys, values).ok());
    return values;
  }

 private:
  class Writer final : public PartWriter {
   public:
    explicit Writer(std::shared_ptr<Part> part) : part_(std::move(part)) {}
    [[nodiscard]] bool has_room() const override { return true; }
    void write(Bytes page) override { part_->pages.push_back(std::move(page)); }
    void finish() override { part_->whole = true; }
    [[nodiscard]] std::optional<Status> result() const override {
      return part_->whole ? std::optional(Status()) : std::nullopt;
    }

   private:
    const std::shared_ptr<Part> part_;
  };
  std::map<std::pair<uint64_t, uint32_t>, std::shared_ptr<Part>> parts_;
};

/// A server, and what is under way on its connections, by their numbers.
class Server {
 public:
  Server(uint32_t index, uint32_t ranks, MemoryStore& store)
      : service({.index = index, .ranks = ranks, .shards = kTestShards, .page_bytes = 1}, store,
                [this](uint64_t client, Bytes message) {
                  to_rank[client].push_back(std::move(message));
                }) {}

  /// Takes a message of any connection, whose rank may have left it.
  void turn(std::minstd_rand& random) {
    if (random() % 3 == 0) service.work();
    std::vector<uint64_t> speaking;
    for (const auto& [connection, messages] : to_server)
      if (!messages.empty()) speaking.push_back(connection);
    if (speaking.empty()) return;
    const uint64_t connection = speaking[random() % speaking.size()];
    auto& messages = to_server.at(connection);
    const Bytes message = std::move(messages.front());
    messages.pop_front();
    if (!message.empty()) {
      const Bytes body = arrived_body(message);
      const Status status = service.hear(connection, header_of(message), body, Time{});
      EXPECT_TRUE(status.ok()) << status.message();
      return;
    }
    service.dismiss(connection);
    to_rank.erase(connection);
    to_server.erase(connection);
  }

  std::map<uint64_t, std::deque<Bytes>> to_server;  ///< An empty message: the rank has hung up.
  std::map<uint64_t, std::deque<Bytes>> to_rank;
  TableService service;
};

class World;

/// A rank: its links, and what its user does.
class Rank final : public Links {
 public:
  Rank(World& world, uint32_t rank, uint32_t ranks, size_t servers);

  void add(uint32_t server, const std::string& /*address*/) override {
    lines_.resize(std::max<size_t>(lines_.size(), server + 1));
  }
  Questions& questions(uint32_t server) override { return lines_.at(server).questions; }
  void forget(uint32_t server) override { lines_.at(server).questions.forget(); }
  Result<std::optional<std::string>> find(uint32_t server) override;

  /// One thing that may happen to the connection with this server.
  void turn(uint32_t server, std::minstd_rand& random);
  void cut(uint32_t server, std::minstd_rand& random);
  /// This rank alone cannot reach it.
  void leave(uint32_t server) { worker_.lose(server, "out of reach"); }
  /// The user's next call, or what follows from answers.
  void go_on(std::minstd_rand& random);
  [[nodiscard]] bool done() const;
  [[nodiscard]] bool opened() const { return opened_; }
  [[nodiscard]] const TableWorker& worker() const { return worker_; }
  [[nodiscard]] size_t lines() const { return lines_.size(); }

 private:
  struct Line {
    Questions questions;
    uint64_t connection = 0;  ///< 0: none.
  };
  void send(Line& line, Server& server) const;
  void read(uint32_t number, Line& line, Server& server);
  void start_call(std::minstd_rand& random);
  void start_save();
  void start_push();
  void ask_ahead();
  void check_call() const;

  World& world_;
  const uint32_t rank_;
  std::vector<Line> lines_;  ///< By server.
  TableWorker worker_;
  bool opened_ = false;
  bool pulls_ = false;  ///< The call that is under way, or was the last one but for saves.
  bool saves_ = false;  ///< The call that is under way, or was the last one.
  bool begun_ = false;
  bool waited_ = false;
  uint64_t pushed_ = 0;
  std::vector<uint64_t> ids_;  ///< Of the pull that is under way, or the next one.
  bool asked_ahead_ = false;
  uint64_t answered_ = 0;  ///< Of its pushes, when these ids were asked for first.
};

struct Chances {
  Mode mode = Mode::kSync;
  uint32_t staleness = 0;
  uint32_t evict_after = 0;
  uint32_t replicas = 1;
  size_t steps = 6;
  uint32_t trouble_once_in = 40;  ///< Turns.
};

class World {
 public:
  World(uint32_t seed, const Chances& chances) : chances_(chances), random_(seed + 1) {
    const auto ranks = static_cast<uint32_t>(1 + random_() % 3);
    const size_t first = 2 + random_() % 2;
    for (size_t i = 0; i < first; ++i) start_server(ranks);
    pushes_.resize(chances.steps);
    for (auto& step : pushes_)
      for (uint32_t rank = 0; rank < ranks; ++rank) step.push_back(draw(random_));
    checker_.emplace(spec(), pushes_, kKeys);
    for (uint32_t rank = 0; rank < ranks; ++rank)
      ranks_.push_back(std::make_unique<Rank>(*this, rank, ranks, first));
  }

  void run() {
    while (!std::ranges::all_of(ranks_, [](const auto& rank) { return rank->done(); })) {
      if (testing::Test::HasFailure()) return;
      ASSERT_LT(++turns_, 200'000U) << "nothing ends";
      turn();
    }
    check_servers();
  }

  [[nodiscard]] Server* server(uint32_t index) const { return servers_.at(index).get(); }
  [[nodiscard]] size_t servers() const { return servers_.size(); }
  [[nodiscard]] uint64_t next_connection() { return ++connections_; }
  [[nodiscard]] const Batch& batch(uint64_t step, uint32_t rank) const {
    return pushes_.at(step - 1).at(rank);
  }
  [[nodiscard]] TableSpec spec() const {
    return spec_of_test(chances_.mode, chances_.staleness, chances_.evict_after);
  }
  [[nodiscard]] const HistoryChecker& checker() const { return *checker_; }
  [[nodiscard]] std::minstd_rand& random() { return random_; }
  [[nodiscard]] const Chances& chances() const { return chances_; }
  [[nodiscard]] size_t losses() const { return losses_; }
  [[nodiscard]] size_t leaves() const { return leaves_; }
  [[nodiscard]] size_t saves() const { return saves_; }
  /// Rank 0 has heard that all parts are there.
  void check_snapshot(const TableWorker::Written& written) {
    ++saves_;
    const auto base = bases_.at(written.attempt >> 16U);
    if (!base) chain_.clear();
    EXPECT_EQ(base.has_value(), !chain_.empty());
    chain_.push_back(written);
    deltas_ += base ? 1 : 0;
    EXPECT_EQ(store_.rows_of(spec(), chain_), checker_->after(written.step))
        << "the snapshot of step " << written.step << ", the last of " << chain_.size();
  }
  /// What the next snapshot, of this step, builds on: the one that was finished last, or none.
  [[nodiscard]] std::optional<checkpoint::Base> draw_base(uint64_t step, uint64_t attempt) {
    auto& base = bases_[attempt >> 16U];
    const bool may_be = !chain_.empty() && chain_.back().step < step && chances_.evict_after == 0;
    if (may_be && random_() % 4 != 0) base = checkpoint::Base{.step = chain_.back().step};
    return base;
  }
  [[nodiscard]] size_t deltas() const { return deltas_; }
  [[nodiscard]] uint64_t moves() const { return ranks_[0]->worker().holders(0).version(); }

 private:
  void start_server(uint32_t ranks) {
    servers_.push_back(
        std::make_unique<Server>(static_cast<uint32_t>(servers_.size()), ranks, store_));
  }

  void turn() {
    end_released();
    Rank& rank = *ranks_[random_() % ranks_.size()];
    const auto server = static_cast<uint32_t>(random_() % rank.lines());
    const bool troubled = turns_ < kTroubledTurns;  // Else some seeds cut whatever is said.
    if (troubled && random_() % chances_.trouble_once_in == 0) return make_trouble(rank, server);
    const auto event = random_() % 4;
    if (event == 0) {
      rank.go_on(random_);
    } else if (event < 3) {
      rank.turn(server, random_);
    } else if (Server* const one = servers_[random_() % servers_.size()].get()) {
      one->turn(random_);
    }
  }

  void make_trouble(Rank& rank, uint32_t server) {
    switch (random_() % 5) {
      case 4:
        return ask_to_leave();
      case 0:
        if (servers_.size() < 8) start_server(static_cast<uint32_t>(ranks_.size()));
        return;
      case 1:
        return lose_server(rank);
      default:
        return rank.cut(server, random_);
    }
  }

  /// Rows that nobody would have if this server were not there, and none that is to leave.
  [[nodiscard]] bool is_needed(size_t server) const {
    std::vector<bool> lost(servers_.size());
    for (size_t i = 0; i < servers_.size(); ++i)
      lost[i] = servers_[i] == nullptr || i == server || left_.contains(i) || leaving_.contains(i);
    return std::ranges::any_of(ranks_, [&](const auto& one) {
      return !one->opened() || one->worker().holders(0).lost_shard(lost);
    });
  }

  /// For all, or at first for one rank alone. Never the last one that has some rows; with one copy
  /// that might be one to which they have just been moved.
  void lose_server(Rank& rank) {
    if (chances_.replicas == 0) return;
    const auto victim = static_cast<uint32_t>(random_() % servers_.size());
    if (is_needed(victim)) return;
    if (victim < rank.lines() && rank.worker().uses(victim) && random_() % 4 == 0) {
      left_.insert(victim);
      rank.leave(victim);
    } else {
      servers_[victim].reset();
    }
    ++losses_;
  }

  /// Also one that alone has some rows: then nobody is lost until they are copied. Not while rank 0
  /// takes another one for there that is not: that one might be the only one to stay.
  void ask_to_leave() {
    const size_t server = random_() % servers_.size();
    if (servers_[server] == nullptr) return;
    for (size_t other = 0; other < ranks_[0]->lines(); ++other)
      if (!servers_[other] && ranks_[0]->worker().uses(static_cast<uint32_t>(other))) return;
    leaving_.insert(server);
    servers_[server]->service.leave();
  }
  /// Those that nobody needs end.
  void end_released() {
    for (auto& server : servers_) {
      if (!server || !server->service.is_released()) continue;
      server.reset();
      ++leaves_;
    }
  }

  void check_servers();

  const Chances chances_;
  std::minstd_rand random_;
  MemoryStore store_;
  std::vector<std::unique_ptr<Server>> servers_;  ///< Null: lost.
  std::set<size_t> left_;                         ///< Servers that run, and ranks leave.
  std::set<size_t> leaving_;                      ///< That are asked to leave, and may have left.
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::vector<Batch>> pushes_;  ///< By step and rank.
  std::optional<HistoryChecker> checker_;
  uint64_t connections_ = 0;
  size_t turns_ = 0;
  size_t losses_ = 0;
  size_t leaves_ = 0;
  size_t saves_ = 0;
  std::vector<TableWorker::Written> chain_;  ///< The last snapshots, the whole one first.
  std::map<uint64_t, std::optional<checkpoint::Base>> bases_;  ///< By attempt, without its round.
  size_t deltas_ = 0;
};

Rank::Rank(World& world, uint32_t rank, uint32_t ranks, size_t servers)
    : world_(world),
      rank_(rank),
      lines_(servers),
      worker_({.rank = rank,
               .ranks = ranks,
               .servers = std::vector<std::string>(servers, "somewhere"),
               .patience = std::chrono::seconds(1),
               .shards = kTestShards,
               .move_bytes = kMoveBytes},
              *this) {}

Result<std::optional<std::string>> Rank::find(uint32_t server) {
  if (server >= world_.servers()) return std::optional<std::string>();
  if (world_.server(server) == nullptr && server % 2 == 0)
    return Status(Code::kNotFound, "it has ended");
  return std::optional<std::string>("somewhere else");
}

void Rank::turn(uint32_t number, std::minstd_rand& random) {
  if (!worker_.uses(number)) return;
  Line& line = lines_[number];
  Server* const server = world_.server(number);
  if (server == nullptr) return worker_.lose(number, "it is gone");
  if (line.connection == 0) {
    line.connection = world_.next_connection();
    server->to_server[line.connection];
    server->service.admit(line.connection, rank_);
    line.questions.begin();
  } else if (random() % 2 == 0 && line.questions.next() != nullptr) {
    send(line, *server);
  } else {
    read(number, line, *server);
  }
}

void Rank::send(Line& line, Server& server) const {
  server.to_server[line.connection].push_back(*line.questions.next());
  line.questions.sent();
}

void Rank::read(uint32_t number, Line& line, Server& server) {
  auto& arriving = server.to_rank[line.connection];
  if (arriving.empty()) return;
  const Bytes message = std::move(arriving.front());
  arriving.pop_front();
  const Header header = header_of(message);
  const Bytes body = arrived_body(message);
  if (!line.questions.take(header, body) && header.request == 0) worker_.hear(number, header, body);
}

/// Some of what the server has not taken yet never arrives.
void Rank::cut(uint32_t number, std::minstd_rand& random) {
  Line& line = lines_[number];
  Server* const server = world_.server(number);
  if (line.connection == 0 || server == nullptr) return;
  auto& under_way = server->to_server[line.connection];
  under_way.resize(under_way.empty() ? 0 : random() % (under_way.size() + 1));
  under_way.emplace_back();
  line.connection = 0;
}

void Rank::go_on(std::minstd_rand& random) {
  worker_.proceed();
  if (const auto written = worker_.take_written(); written && written->status.ok())
    world_.check_snapshot(*written);
  if (!worker_.over() || done()) return;
  if (begun_) check_call();
  start_call(random);
}

bool Rank::done() const { return waited_ && worker_.over(); }

void Rank::start_call(std::minstd_rand& random) {
  begun_ = true;
  saves_ = rank_ == 0 && opened_ && world_.spec().mode != Mode::kAsync && random() % 4 == 0;
  if (saves_) return start_save();
  if (!opened_) {
    opened_ = true;
    EXPECT_TRUE(worker_.start_open(world_.spec(), world_.chances().replicas).ok());
    return;
  }
  if (pushed_ == world_.chances().steps && pulls_) {
    pulls_ = false;
    waited_ = true;
    EXPECT_TRUE(worker_.start_wait(0).ok());
    return;
  }
  pulls_ = !pulls_ && pushed_ > 0;
  if (!pulls_) return start_push();
  if (world_.random()() % 4 == 0) ask_ahead();
  if (!asked_ahead_) answered_ = worker_.steps(0);
  EXPECT_TRUE(worker_.start_pull(0, ids_).ok());
}

void Rank::start_save() {
  worker_.start_wait_for_save(0);
  worker_.proceed();
  if (!worker_.over()) return;
  const uint64_t attempt = world_.next_connection() << 16U;
  EXPECT_TRUE(worker_
                  .start_save_alone(0, {.folder = "somewhere",
                                        .attempt = attempt,
                                        .counts = true,
                                        .base = world_.draw_base(worker_.pushed(0), attempt)})
                  .ok());
}

void Rank::start_push() {
  ids_ = draw_ids(world_.random());
  asked_ahead_ = false;
  if (world_.random()() % 2 == 0) ask_ahead();
  const Batch& batch = world_.batch(++pushed_, rank_);
  EXPECT_TRUE(worker_.start_push(0, batch.ids, batch.gradients).ok());
}

/// For the rows of the next pull; sometimes also for others, that nobody pulls then.
void Rank::ask_ahead() {
  if (world_.random()() % 4 == 0) {
    EXPECT_TRUE(worker_.prefetch(0, draw_ids(world_.random()), 2).ok());
  }
  if (!asked_ahead_) answered_ = worker_.steps(0);
  asked_ahead_ = true;
  EXPECT_TRUE(worker_.prefetch(0, ids_, 2).ok());
}

void Rank::check_call() const {
  ASSERT_TRUE(worker_.result().ok()) << worker_.result().message();
  EXPECT_GE(worker_.steps(0) + world_.chances().staleness, pushed_);
  if (!pulls_ || saves_) return;
  std::vector<float> rows(ids_.size());
  worker_.copy_rows(rows);
  EXPECT_EQ(
      world_.checker().explain(
          {.rank = rank_, .pushed = pushed_, .answered = answered_, .ids = ids_, .rows = rows}),
      "");
}

/// Each holder has the rows, not only those that were pulled from.
void World::check_servers() {
  const Holders& holders = ranks_[0]->worker().holders(0);
  for (uint64_t key = 0; key < kKeys; ++key) {
    for (const uint16_t holder : holders.of(key)) {
      if (!servers_[holder] || left_.contains(holder)) continue;
      float value = 0;
      const ServedTable* const table = servers_[holder]->service.find("t");
      EXPECT_TRUE(table->pull(std::span(&key, 1), std::span(&value, 1)).ok());
      EXPECT_EQ(value, checker_->last(key)) << "server " << holder << ", key " << key;
    }
  }
}

/// Losses and moves of many seeds.
struct Seen {
  size_t losses = 0;
  size_t leaves = 0;
  size_t saves = 0;
  size_t deltas = 0;
  uint64_t moves = 0;
};
Seen run_seeds(uint32_t seeds, Chances chances) {
  Seen seen;
  for (uint32_t seed = 0; seed < seeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    chances.replicas = seed % 3;
    chances.evict_after = seed % 5 == 0 ? 4 : 0;
    chances.trouble_once_in = 20 + seed % 100;
    if (chances.mode != Mode::kSync) chances.staleness = 1 + seed % 3;
    World world(seed, chances);
    world.run();
    seen.losses += world.losses();
    seen.leaves += world.leaves();
    seen.saves += world.saves();
    seen.deltas += world.deltas();
    seen.moves += world.moves();
  }
  return seen;
}

TEST(TableWorker, NoPushIsLostOrCountedTwiceWhateverHappens) {
  const uint32_t seeds = kSanitized ? 500 : 10'000;
  const Seen seen = run_seeds(seeds, {});
  EXPECT_GT(seen.losses, seeds / 2);
  EXPECT_GT(seen.leaves, seeds / 10);
  EXPECT_GT(seen.saves, seeds / 10);
  EXPECT_GT(seen.deltas, seeds / 20);
  EXPECT_GT(seen.moves, seeds / 2);
}

TEST(TableWorker, InBoundedModeRowsAreAsNewAsTheStalenessSays) {
  const uint32_t seeds = kSanitized ? 500 : 5'000;
  const Seen seen = run_seeds(seeds, {.mode = Mode::kBounded});
  EXPECT_GT(seen.losses, seeds / 2);
  EXPECT_GT(seen.leaves, seeds / 20);
  EXPECT_GT(seen.saves, seeds / 10);
  EXPECT_GT(seen.deltas, seeds / 20);
  EXPECT_GT(seen.moves, seeds / 2);
}

TEST(TableWorker, InAsyncModeEachPushCountsOnce) {
  const uint32_t seeds = kSanitized ? 500 : 5'000;
  const Seen seen = run_seeds(seeds, {.mode = Mode::kAsync});
  EXPECT_GT(seen.losses, seeds / 4);
  EXPECT_EQ(seen.moves, 0U);
}

}  // namespace
}  // namespace corro::table
