// NamedSimulation: named operations of N ranks in one process, for tests. Messages, programs and
// operations advance in seeded order; lanes start operations strictly in the order they were given.
// Checks that every operation is the same on all ranks, down to which submission of a name it
// carries, and that everyone knows how many ranks its average leaves out.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "named/named_negotiator.h"
#include "named/named_queue.h"

namespace corro::named {

/// What a rank's program does next.
struct NamedAction {
  enum class Kind : uint8_t { kSubmit, kWait, kJoin };
  Kind kind = Kind::kSubmit;
  NamedEntry entry = {};  ///< kWait: only the name counts.
};

class NamedSimulation {
 public:
  struct Options {
    int32_t size = 2;
    uint64_t seed = 0;
    NegotiatorOptions negotiator = {};
    size_t depth = 4;    ///< Operations in flight on a lane.
    bool hurry = false;  ///< A wait is announced to the queue.
  };

  explicit NamedSimulation(Options options) : options_(options), random_(options.seed) {
    std::vector<int32_t> members(static_cast<size_t>(options_.size));
    for (size_t i = 0; i < members.size(); ++i) members[i] = static_cast<int32_t>(i);
    negotiator_ = std::make_unique<Negotiator>(members, options_.negotiator);
    ranks_ = std::vector<Rank>(members.size());
    for (const int32_t rank : members)
      ranks_[static_cast<size_t>(rank)].queue = NamedQueue({.rank = rank});
  }

  void submit(int32_t rank, NamedEntry entry) {
    program(rank).push_back({NamedAction::Kind::kSubmit, std::move(entry)});
  }
  void wait(int32_t rank, std::string name) {
    program(rank).push_back({NamedAction::Kind::kWait, {.name = std::move(name), .op = {}}});
  }
  /// The program goes on once every rank has joined.
  void join(int32_t rank) { program(rank).push_back({.kind = NamedAction::Kind::kJoin}); }

  /// Runs until every program is over and nothing is left to do. True if nothing had to be given
  /// up.
  bool run() {
    while (step()) {
    }
    bool over = true;
    for (const Rank& rank : ranks_)
      over = over && rank.program.empty() && rank.running.empty() && !rank.joining;
    CORRO_CHECK(over, "stands still");
    return given_up_ == 0;
  }

  [[nodiscard]] uint64_t messages() const { return messages_; }
  [[nodiscard]] uint64_t given_up() const { return given_up_; }
  [[nodiscard]] uint64_t completed() const { return completed_; }
  [[nodiscard]] uint64_t planned_operations() const { return planned_operations_; }
  [[nodiscard]] uint64_t operations() const { return compositions_.size(); }
  /// Operations that a rank had started when a plan was left, and that were taken back.
  [[nodiscard]] uint64_t taken_back() const { return taken_back_; }
  [[nodiscard]] Negotiator& negotiator() { return *negotiator_; }
  [[nodiscard]] bool following() const { return negotiator_->planned(); }
  /// Messages of failures, by rank, in order.
  [[nodiscard]] const std::vector<std::string>& failures(int32_t rank) const {
    return ranks_[static_cast<size_t>(rank)].failures;
  }
  /// Who joined last, as this rank was told, join by join.
  [[nodiscard]] const std::vector<int32_t>& last_joined(int32_t rank) const {
    return ranks_[static_cast<size_t>(rank)].last_joined;
  }
  /// Operations in which a rank took part that had joined without them.
  [[nodiscard]] uint64_t with_identities() const {
    return static_cast<uint64_t>(
        std::ranges::count_if(compositions_, [](const auto& item) { return item.second.absent; }));
  }

 private:
  using OpId = std::pair<NamedLane, uint64_t>;
  static constexpr uint64_t kJoinToken = ~uint64_t{0};
  struct Choice {
    enum Kind : uint8_t { kUp, kDown, kAct, kFinish };
    Kind kind;
    size_t rank;
    size_t running = 0;
  };
  struct Token {
    std::string name;
    uint64_t instance = 0;
    bool asked = false, over = false;
  };
  struct Composition {
    /// Which submission of each name is where, of all ranks.
    std::map<std::pair<uint64_t, std::string>, uint64_t> parts;
    size_t whole = 0;    ///< The parts of each rank that gives no identity.
    int32_t absent = 0;  ///< Ranks without any.
  };
  struct Rank {
    NamedQueue queue;
    std::deque<NamedAction> program;
    std::deque<Bytes> to_leader, from_leader;
    std::vector<Token> tokens;
    std::map<std::string, uint64_t> instances;
    std::map<std::string, uint64_t> last_token;
    std::map<NamedLane, std::deque<NamedStart>> queued;
    std::map<NamedLane, uint64_t> next_op;  ///< What the lane has to be given next.
    std::vector<std::pair<OpId, NamedStart>> running;
    std::vector<std::string> failures;
    bool joining = false;
    std::vector<int32_t> last_joined;
  };

  std::deque<NamedAction>& program(int32_t rank) {
    return ranks_[static_cast<size_t>(rank)].program;
  }

  /// One thing that can happen, picked at random; when nothing can, time passes to the next check,
  /// and when nobody checks either, somebody's deadline is over.
  bool step() {
    enabled_.clear();
    for (size_t i = 0; i < ranks_.size(); ++i) add_rank(i);
    if (enabled_.empty()) return pass_time() || give_up();
    const Choice choice = enabled_[random_() % enabled_.size()];
    switch (choice.kind) {
      case Choice::kUp:
        deliver_up(choice.rank);
        break;
      case Choice::kDown:
        deliver_down(choice.rank);
        break;
      case Choice::kAct:
        act(choice.rank);
        break;
      case Choice::kFinish:
        finish(choice.rank, choice.running);
        break;
    }
    return true;
  }

  void add_rank(size_t index) {
    Rank& rank = ranks_[index];
    if (!rank.to_leader.empty()) enabled_.push_back({Choice::kUp, index});
    if (!rank.from_leader.empty()) enabled_.push_back({Choice::kDown, index});
    if (!rank.program.empty() && may_act(rank)) enabled_.push_back({Choice::kAct, index});
    for (size_t i = 0; i < rank.running.size(); ++i) {
      const OpId& id = rank.running[i].first;
      if (started_[id] == ranks_.size() || failed_.contains(id)) {
        enabled_.push_back({Choice::kFinish, index, i});
      }
    }
  }

  bool may_act(const Rank& rank) const {
    if (rank.joining) return false;
    const NamedAction& action = rank.program.front();
    const auto token = rank.last_token.find(action.entry.name);
    if (token == rank.last_token.end()) return true;
    // Nobody submits a name again before it is over.
    return rank.tokens[token->second].over;
  }

  void act(size_t index) {
    Rank& rank = ranks_[index];
    const NamedAction action = std::move(rank.program.front());
    rank.program.pop_front();
    if (action.kind == NamedAction::Kind::kWait) return;
    if (action.kind == NamedAction::Kind::kJoin) {
      rank.joining = true;
      CORRO_CHECK(rank.queue.join(kJoinToken).ok());
      return collect(index);
    }
    const auto token = static_cast<uint64_t>(rank.tokens.size());
    rank.tokens.push_back({action.entry.name, rank.instances[action.entry.name]++});
    rank.last_token[action.entry.name] = token;
    const Status status = rank.queue.submit(action.entry, token, now_);
    CORRO_CHECK(status.ok(), status.message());
    collect(index);
    if (options_.hurry && !rank.program.empty() && !may_act(rank)) {
      rank.queue.hurry(rank.program.front().entry.name);
      collect(index);
    }
  }

  void deliver_up(size_t index) {
    const Bytes bytes = std::move(ranks_[index].to_leader.front());
    ranks_[index].to_leader.pop_front();
    const Status status = negotiator_->receive(static_cast<int32_t>(index), bytes);
    CORRO_CHECK(status.ok(), status.message());
    publish();
  }

  void publish() {
    // A leader whose lane is busy takes its time: runs become longer.
    if (random_() % 2 == 0 && any_message()) return;
    while (auto bytes = negotiator_->take_decision()) {
      for (Rank& rank : ranks_) {
        rank.from_leader.push_back(*bytes);
        ++messages_;
      }
    }
  }

  bool any_message() const {
    for (const Rank& rank : ranks_) {
      if (!rank.to_leader.empty()) return true;
    }
    return false;
  }

  void deliver_down(size_t index) {
    Rank& rank = ranks_[index];
    const Status status = rank.queue.receive(rank.from_leader.front());
    rank.from_leader.pop_front();
    CORRO_CHECK(status.ok(), status.message());
    // An engine takes in all that has come before it moves its lanes.
    if (rank.from_leader.empty() || random_() % 2 == 0) collect(index);
  }

  void collect(size_t index) {
    Rank& rank = ranks_[index];
    // Announcing late gathers more into one message.
    if (random_() % 4 != 0 || rank.program.empty() || !may_act(rank)) {
      while (auto bytes = rank.queue.take_announcement()) {
        rank.to_leader.push_back(std::move(*bytes));
        ++messages_;
      }
    }
    while (auto failure = rank.queue.take_failure()) take_failure(rank, *failure);
    while (auto start = rank.queue.take_start()) take_start(rank, std::move(*start));
    start_queued(rank);
  }

  void take_start(Rank& rank, NamedStart start) {
    uint64_t& next = rank.next_op[start.lane];
    while (given_up_ops_.contains({&rank, {start.lane, next}})) ++next;
    if (start.resume) return take_back(rank, start);
    CORRO_CHECK(start.op == next, "out of order", start.op, next);
    ++next;
    rank.queued[start.lane].push_back(std::move(start));
  }

  /// What was started and is taken back has ended nowhere: some rank has not started it.
  void take_back(Rank& rank, const NamedStart& back) {
    std::erase_if(rank.queued[back.lane],
                  [&back](const NamedStart& start) { return start.op >= back.op; });
    std::erase_if(rank.running, [&](const auto& running) {
      const auto& [id, start] = running;
      if (id.first != back.lane || id.second < back.op) return false;
      CORRO_CHECK(started_[id] < ranks_.size(), "taken back, and started everywhere", id.second);
      ++taken_back_;
      return true;
    });
    uint64_t& next = rank.next_op[back.lane];
    CORRO_CHECK(back.op <= next && next <= *back.resume, back.op, next, *back.resume);
    next = *back.resume;
  }

  /// All operations of the planned lane that this rank has started below the result have ended.
  static uint64_t ended_below(const Rank& rank) {
    uint64_t below = UINT64_MAX;
    for (const auto& [id, start] : rank.running) {
      if (id.first == NamedLane::kPlanned) below = std::min(below, id.second);
    }
    const auto queued = rank.queued.find(NamedLane::kPlanned);
    if (queued != rank.queued.end() && !queued->second.empty())
      below = std::min(below, queued->second.front().op);
    const auto next = rank.next_op.find(NamedLane::kPlanned);
    return std::min(below, next == rank.next_op.end() ? 0 : next->second);
  }

  void take_failure(Rank& rank, const NamedFailure& failure) {
    for (const uint64_t token : failure.tokens) end(rank, token, failure.status.message());
    if (!failure.cancelled) return;
    const OpId id{NamedLane::kOrdered, *failure.cancelled};
    failed_.emplace(id, failure.status.message());
    given_up_ops_.emplace(&rank, id);
  }

  void start_queued(Rank& rank) {
    for (auto& [lane, queue] : rank.queued) {
      while (!queue.empty() && in_flight(rank, lane) < options_.depth) {
        const OpId id{lane, queue.front().op};
        check_composition(rank, id, queue.front());
        ++started_[id];
        rank.running.emplace_back(id, std::move(queue.front()));
        queue.pop_front();
      }
    }
  }

  static size_t in_flight(const Rank& rank, NamedLane lane) {
    size_t count = 0;
    for (const auto& [id, start] : rank.running) count += id.first == lane ? 1 : 0;
    return count;
  }

  void check_composition(const Rank& rank, const OpId& id, const NamedStart& start) {
    const auto [known, first] = compositions_.try_emplace(id);
    Composition& composition = known->second;
    if (first && id.first == NamedLane::kPlanned) ++planned_operations_;
    if (start.last_joined >= 0) return;
    if (start.parts.empty()) ++composition.absent;
    for (const NamedStart::Part& part : start.parts) {
      const Token& token = rank.tokens[part.token];
      const auto& [known_part, added] =
          composition.parts.try_emplace({part.offset_bytes, token.name}, token.instance);
      CORRO_CHECK(known_part->second == token.instance, "another submission", token.name);
    }
    if (!start.gives_identity) composition.whole = start.parts.size();
    const bool same = start.gives_identity || start.parts.size() == composition.parts.size();
    CORRO_CHECK(same && (composition.whole == 0 || composition.parts.size() == composition.whole),
                "the same operation carries different things", id.second);
  }

  /// All ranks take part now: everyone knows of how many its average is.
  void check_absent(const OpId& id, const NamedStart& start) {
    const bool averages = start.as_one.signature.reduce_op == ReduceOp::kAverage;
    const int32_t absent = compositions_[id].absent;
    CORRO_CHECK(!averages || start.absent == absent, id.second, start.absent, absent);
  }

  void finish(size_t index, size_t running) {
    Rank& rank = ranks_[index];
    const auto [id, start] = std::move(rank.running[running]);
    rank.running.erase(rank.running.begin() + static_cast<std::ptrdiff_t>(running));
    const auto failed = failed_.find(id);
    if (failed == failed_.end()) check_absent(id, start);
    rank.queue.retire_planned(ended_below(rank));
    if (start.last_joined >= 0) return end_join(rank, start);
    for (const NamedStart::Part& part : start.parts) {
      end(rank, part.token, failed == failed_.end() ? "" : failed->second);
    }
    start_queued(rank);
  }

  void end_join(Rank& rank, const NamedStart& start) {
    CORRO_CHECK(rank.joining && start.parts[0].token == kJoinToken);
    rank.joining = false;
    rank.last_joined.push_back(start.last_joined);
    rank.instances.clear();  // A rank that had joined has submitted fewer.
    start_queued(rank);
  }

  void end(Rank& rank, uint64_t token, const std::string& failure) {
    CORRO_CHECK(!rank.tokens[token].over, "ended twice", rank.tokens[token].name);
    rank.tokens[token].over = true;
    if (failure.empty()) {
      ++completed_;
    } else {
      rank.failures.push_back(failure);
    }
  }

  bool pass_time() {
    Time next = Time::never();
    for (const Rank& rank : ranks_) next = std::min(next, rank.queue.next_check());
    bool more = false;
    for (size_t i = 0; i < ranks_.size(); ++i) {
      collect(i);
      more = more || !ranks_[i].to_leader.empty();
    }
    publish();
    for (const Rank& rank : ranks_) more = more || !rank.from_leader.empty();
    if (more) return true;
    if (next == Time::never()) return false;
    now_ = std::max(now_, next);
    for (Rank& rank : ranks_) rank.queue.check_patience(now_);
    return true;
  }

  /// The first rank that waits asks whom for, then gives up what it waits for, or fails the
  /// operation it is in.
  bool give_up() {
    if (given_up_ == 0) check_waits();
    for (size_t i = 0; i < ranks_.size(); ++i) {
      Rank& rank = ranks_[i];
      if (rank.program.empty() && rank.running.empty() && !rank.queue.has_pending()) continue;
      for (uint64_t token = 0; token < rank.tokens.size(); ++token) {
        Token& each = rank.tokens[token];
        if (each.over) continue;
        if (fail_running(rank, token, i)) {
          ++given_up_;
          return true;
        }
        const std::string name = each.name;
        if (!std::exchange(each.asked, true)) {
          rank.queue.ask(name);
          collect(i);
          return true;
        }
        ++given_up_;
        end(rank, token, "deadline: " + rank.queue.describe(name));
        rank.queue.withdraw(name, token);
        collect(i);
        return true;
      }
    }
    return false;
  }

  /// Nothing can happen any more: whatever still waits waits for a submission of some rank.
  void check_waits() const {
    for (const Rank& rank : ranks_) {
      if (!rank.failures.empty()) return;  // Ranks count instances of a name differently from here.
    }
    for (const Rank& rank : ranks_) {
      for (const Token& token : rank.tokens) {
        if (token.over) continue;
        const bool all = std::ranges::all_of(ranks_, [&token](const Rank& each) {
          const auto submitted = each.instances.find(token.name);
          const uint64_t count = submitted == each.instances.end() ? 0 : submitted->second;
          return each.joining || count > token.instance;
        });
        CORRO_CHECK(!all, "waits for a name that all ranks have submitted", token.name);
      }
    }
  }

  bool fail_running(const Rank& rank, uint64_t token, size_t index) {
    for (const auto& [id, start] : rank.running) {
      for (const NamedStart::Part& part : start.parts) {
        if (part.token == token) {
          failed_.emplace(id, "deadline inside on rank " + std::to_string(index));
          return true;
        }
      }
    }
    return false;
  }

  Options options_;
  std::mt19937_64 random_;
  std::unique_ptr<Negotiator> negotiator_;
  std::vector<Rank> ranks_;
  std::vector<Choice> enabled_;
  std::map<OpId, size_t> started_;
  std::map<OpId, std::string> failed_;
  std::map<OpId, Composition> compositions_;
  std::set<std::pair<const Rank*, OpId>> given_up_ops_;  ///< Take their turn without running.
  Time now_;
  uint64_t messages_ = 0, given_up_ = 0, completed_ = 0, planned_operations_ = 0, taken_back_ = 0;
};

}  // namespace corro::named
