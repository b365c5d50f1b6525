// Liveness: single rules, and thousands of simulated jobs in which processes are killed and stopped
// and hosts vanish at any moment, while connections are made, cross, and break.
#include "runtime/liveness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>

namespace corro::runtime {
namespace {

using Kind = LivenessAction::Kind;
using Actions = Liveness::Actions;

const std::vector<std::string> kThreeHosts = {"a", "a", "b", "b", "c", "c"};

std::vector<int32_t> ranks_of(const Actions& actions, Kind kind) {
  std::vector<int32_t> ranks;
  for (const auto& action : actions) {
    if (action.kind == kind) ranks.push_back(action.rank);
  }
  return ranks;
}
using Ranks = std::vector<int32_t>;

TEST(Liveness, OnOneHostNobodyDials) { EXPECT_TRUE(Liveness(1, {"a", "a", "a"}).start().empty()); }

TEST(Liveness, OwnersDialTheirNeighboursAndOthersTheirOwner) {
  EXPECT_EQ(ranks_of(Liveness(2, kThreeHosts).start(), Kind::kDial), (Ranks{4, 0}));
  EXPECT_EQ(ranks_of(Liveness(3, kThreeHosts).start(), Kind::kDial), Ranks{2});
  EXPECT_EQ(ranks_of(Liveness(0, {"a", "b", "a"}).start(), Kind::kDial), Ranks{1})
      << "of two hosts one is next and previous";
}

TEST(Liveness, AtTheStartTheLowerRankWaitsForTheHigherOnesDial) {
  const Actions actions = Liveness(2, kThreeHosts).start();
  EXPECT_TRUE(actions[0].gently);
  EXPECT_FALSE(actions[1].gently);
}

TEST(Liveness, AnUnreachableHostIsLostWithAllItsRanksAndTheOthersAreTold) {
  Liveness owner(0, kThreeHosts);
  (void)owner.start();
  for (const int32_t rank : {1, 2, 4}) (void)owner.linked(rank, rank == 1);
  const Actions actions = owner.unreachable(2);
  EXPECT_EQ(ranks_of(actions, Kind::kLose), (Ranks{2, 3}));
  EXPECT_EQ(ranks_of(actions, Kind::kForget), Ranks{2});
  EXPECT_EQ(ranks_of(actions, Kind::kTell), (Ranks{1, 4}));
  EXPECT_TRUE(ranks_of(actions, Kind::kDial).empty()) << "4 is next and previous now, and linked";
  EXPECT_TRUE(owner.unreachable(3).empty()) << "known";
}

TEST(Liveness, NewsIsPassedOnOnceAndAwayFromWhereItCame) {
  Liveness owner(0, kThreeHosts);
  (void)owner.start();
  for (const int32_t rank : {1, 2, 4}) (void)owner.linked(rank, rank == 1);
  EXPECT_EQ(ranks_of(owner.told(4, 2, 4), Kind::kTell), Ranks{1});
  EXPECT_TRUE(owner.told(1, 2, 4).empty());
  EXPECT_EQ(owner.linked(3, false), Actions{}) << "of a lost host";
  const Actions late = owner.linked(5, false);
  ASSERT_EQ(ranks_of(late, Kind::kTell), Ranks{5}) << "a new connection gets all news";
  EXPECT_EQ(late.front().host, 2);
  EXPECT_EQ(late.front().witness, 4);
}

TEST(Liveness, NewsThatCannotBeIsIgnored) {
  Liveness rank(0, kThreeHosts);
  for (const int32_t host : {-1, 6, 0, 1, 3, 1 << 30}) {
    EXPECT_TRUE(rank.told(2, host, 2).empty()) << host;
  }
  EXPECT_TRUE(rank.told(2, 4, -1).empty());
  EXPECT_TRUE(rank.told(6, 4, 2).empty());
}

TEST(Liveness, AnEndedOwnerLosesNobodyAndTheNextRankIsDialled) {
  Liveness other(0, kThreeHosts);
  (void)other.start();
  (void)other.linked(2, false);
  EXPECT_EQ(ranks_of(other.closed(2), Kind::kDial), Ranks{2}) << "first it is asked";
  const Actions actions = other.ended(2);
  EXPECT_EQ(ranks_of(actions, Kind::kForget), Ranks{2});
  EXPECT_EQ(ranks_of(actions, Kind::kDial), Ranks{3});
  EXPECT_TRUE(ranks_of(actions, Kind::kLose).empty());
  EXPECT_TRUE(ranks_of(other.ended(3), Kind::kLose).empty()) << "nor does the last one's end";
}

TEST(Liveness, AfterItsOwnersEndTheNextRankDialsTheNeighbours) {
  Liveness second(3, kThreeHosts);
  (void)second.start();
  EXPECT_EQ(ranks_of(second.ended(2), Kind::kDial), (Ranks{4, 0}));
}

TEST(Liveness, OfTwoConnectionsTheHigherRanksStays) {
  Liveness lower(0, kThreeHosts), higher(2, kThreeHosts);
  (void)lower.linked(2, true);
  (void)higher.linked(0, true);
  EXPECT_TRUE(lower.keeps(2, false));
  EXPECT_FALSE(higher.keeps(0, false));
}

// -- the simulation -------------------------------------------------------------------------------

/// A job in virtual time. A host that vanishes answers nothing any more; kernels notice that after
/// kPatience. A stopped process handles nothing until it goes on; its kernel still answers.
class Job {
 public:
  explicit Job(uint64_t seed) : random_(seed) {
    const int32_t hosts = pick(1, 6);
    const bool dealt = pick(0, 1) == 0;
    const int32_t size = hosts * pick(1, 3) + pick(0, 2);
    for (int32_t r = 0; r < size; ++r)
      hosts_.push_back(fmt::format("{}", dealt ? r % hosts : r * hosts / size));
    for (int32_t r = 0; r < size; ++r) {
      ranks_.push_back({.liveness = std::make_unique<Liveness>(r, hosts_)});
      after(pick(0, 20), r, [this, r] { act(r, liveness(r).start()); });
    }
    for (int i = pick(0, 6); i > 0; --i) inject(pick(0, size - 1), pick(0, 200));
  }

  void run() {
    for (int events = 0; !queue_.empty(); ++events) {
      ASSERT_LT(events, 200'000) << "a job that never rests";
      const auto [time, task] = *queue_.begin();
      queue_.erase(queue_.begin());
      now_ = time;
      task();
    }
    check();
  }

 private:
  static constexpr int64_t kPatience = 40, kGentle = 30;
  struct Connection {
    int32_t peer = -1;
    int64_t number = 0;  ///< The same at both ends.
  };
  struct Rank {
    std::unique_ptr<Liveness> liveness;
    bool dead = false, stopped = false;
    std::vector<std::function<void()>> held = {};  ///< Events of a stopped process.
    std::map<int32_t, int64_t> links = {};         ///< By peer.
    std::map<int32_t, int64_t> dials = {};         ///< By peer: number of the attempt.
    std::set<int32_t> lost = {};
  };

  int32_t pick(int32_t least, int32_t most) {
    return std::uniform_int_distribution<int32_t>(least, most)(random_);
  }
  Liveness& liveness(int32_t r) { return *rank(r).liveness; }
  Rank& rank(int32_t r) { return ranks_[static_cast<size_t>(r)]; }
  const std::string& host(int32_t r) const { return hosts_[static_cast<size_t>(r)]; }
  bool vanished(int32_t r) const { return vanished_.contains(host(r)); }
  bool reachable(int32_t a, int32_t b) const {
    return host(a) == host(b) || (!vanished(a) && !vanished(b));
  }

  /// Something happens to a process, unless it is gone by then.
  void after(int64_t delay, int32_t r, std::function<void()> event) {
    queue_.emplace(now_ + delay, [this, r, event = std::move(event)] {
      if (rank(r).dead || vanished(r)) return;
      if (rank(r).stopped) return rank(r).held.push_back(event);
      event();
    });
  }

  void inject(int32_t r, int64_t when) {
    const int32_t kind = pick(0, 3);
    queue_.emplace(when, [this, r, kind] {
      if (kind == 0) vanish(r);
      if (kind == 1 || kind == 2) kill(r);
      if (kind == 3) stop(r);
    });
  }

  void vanish(int32_t r) {
    if (vanished_.size() + 1 == std::set(hosts_.begin(), hosts_.end()).size()) return;
    bool lives = false;
    for (int32_t p = 0; p < size(); ++p) lives = lives || (host(p) == host(r) && !rank(p).dead);
    if (lives && !vanished(r)) missed_.insert(r);
    vanished_.insert(host(r));
    for (int32_t p = 0; p < size(); ++p) {
      for (const auto& [peer, number] : rank(p).links) {
        if (host(peer) == host(r)) notice_unreachable(p, peer, number);
      }
    }
  }

  void kill(int32_t r) {
    if (rank(r).dead || vanished(r)) return;
    rank(r).dead = true;
    for (int32_t p = 0; p < size(); ++p) {
      if (host(p) == host(r) && p != r)
        after(pick(1, 5), p, [this, p, r] { act(p, liveness(p).ended(r)); });
      const auto link = rank(p).links.find(r);  // Also one that it has not accepted yet.
      if (link != rank(p).links.end()) hang_up(r, p, link->second);
    }
  }

  void stop(int32_t r) {
    rank(r).stopped = true;
    queue_.emplace(now_ + pick(1, 300), [this, r] {
      rank(r).stopped = false;
      for (auto& event : std::exchange(rank(r).held, {})) after(0, r, std::move(event));
    });
  }

  /// `from` closes its end; the other one hears of it if the network is there.
  void hang_up(int32_t from, int32_t to, int64_t number) {
    if (!reachable(from, to)) return notice_unreachable(to, from, number);
    after(pick(1, 5), to, [this, from, to, number] {
      if (!has(to, from, number)) return;  // It was replaced.
      rank(to).links.erase(from);
      act(to, liveness(to).closed(from));
    });
  }

  void notice_unreachable(int32_t r, int32_t peer, int64_t number) {
    after(kPatience, r, [this, r, peer, number] {
      if (!has(r, peer, number)) return;
      rank(r).links.erase(peer);
      act(r, liveness(r).unreachable(peer));
    });
  }

  bool has(int32_t r, int32_t peer, int64_t number) {
    const auto found = rank(r).links.find(peer);
    return found != rank(r).links.end() && found->second == number;
  }

  void dial(int32_t r, int32_t peer, bool gently) {
    const int64_t attempt = ++numbers_;
    rank(r).dials[peer] = attempt;
    after(pick(1, 10) + (gently ? kGentle : 0), r, [this, r, peer, attempt] {
      if (!dials(r, peer, attempt)) return;
      ++dials_;
      if (reachable(r, peer) && !rank(peer).dead)
        return after(pick(1, 10), r, [this, r, peer, attempt] { establish(r, peer, attempt); });
      const bool refused = reachable(r, peer);
      after(refused ? pick(1, 5) : kPatience, r, [this, r, peer, attempt, refused] {
        if (!dials(r, peer, attempt)) return;
        act(r, refused ? liveness(r).ended(peer) : liveness(r).unreachable(peer));
      });
    });
  }

  bool dials(int32_t r, int32_t peer, int64_t attempt) {
    const auto found = rank(r).dials.find(peer);
    return found != rank(r).dials.end() && found->second == attempt;
  }

  /// The dialling side is through; the other one hears that a little later, and may refuse.
  void establish(int32_t r, int32_t peer, int64_t attempt) {
    if (!dials(r, peer, attempt)) return;
    if (!reachable(r, peer) || rank(peer).dead) return dial(r, peer, false);
    take(r, peer, attempt, true);
    after(pick(1, 10), peer, [this, r, peer, attempt] {
      if (!has(r, peer, attempt)) return;  // Given up meanwhile.
      if (!take(peer, r, attempt, false)) return hang_up(peer, r, attempt);
      look_at(peer, r, attempt);
    });
    look_at(r, peer, attempt);
  }

  /// The other end may be gone while the connection is made; once it is, kernels say so.
  void look_at(int32_t r, int32_t peer, int64_t number) {
    queue_.emplace(now_ + 12, [this, r, peer, number] {
      if (!has(r, peer, number)) return;
      if (!reachable(r, peer)) return notice_unreachable(r, peer, number);
      if (rank(peer).dead) hang_up(peer, r, number);
    });
  }

  bool take(int32_t r, int32_t peer, int64_t number, bool dialed_here) {
    if (!liveness(r).keeps(peer, dialed_here)) return false;
    rank(r).dials.erase(peer);
    const auto before = rank(r).links.find(peer);
    if (before != rank(r).links.end()) hang_up(r, peer, before->second);
    rank(r).links[peer] = number;
    act(r, liveness(r).linked(peer, dialed_here));
    return true;
  }

  void act(int32_t r, const Actions& actions) {
    for (const LivenessAction& action : actions) {
      const int32_t peer = action.rank;
      if (action.kind == Kind::kDial) dial(r, peer, action.gently);
      if (action.kind == Kind::kForget) {
        rank(r).dials.erase(peer);
        const auto link = rank(r).links.find(peer);
        if (link == rank(r).links.end()) continue;
        hang_up(r, peer, link->second);
        rank(r).links.erase(link);
      }
      if (action.kind == Kind::kTell) tell(r, action);
      if (action.kind == Kind::kLose) {
        EXPECT_TRUE(vanished(peer)) << "rank " << r << " lost rank " << peer << ", which lives";
        EXPECT_TRUE(rank(r).lost.insert(peer).second) << "twice";
      }
    }
  }

  void tell(int32_t r, const LivenessAction& news) {
    const int32_t peer = news.rank;
    const auto link = rank(r).links.find(peer);
    ASSERT_NE(link, rank(r).links.end()) << "news without a connection";
    if (!reachable(r, peer)) return;
    after(pick(1, 10), peer, [this, r, news, peer, number = link->second] {
      // What arrives before the end of the connection is made is read once it is.
      if (has(peer, r, number)) return act(peer, liveness(peer).told(r, news.host, news.witness));
      if (has(r, peer, number)) after(5, r, [this, r, news] { retell(r, news); });
    });
  }

  void retell(int32_t r, const LivenessAction& news) {
    if (rank(r).links.contains(news.rank)) tell(r, news);
  }

  void check() {
    for (int32_t r = 0; r < size(); ++r) {
      if (rank(r).dead || vanished(r)) continue;
      for (const int32_t victim : missed_)
        EXPECT_TRUE(rank(r).lost.contains(victim))
            << "rank " << r << " does not know of " << victim;
      for (const auto& [peer, number] : rank(r).links)
        EXPECT_TRUE(has(peer, r, number)) << r << " and " << peer << " keep different connections";
      EXPECT_TRUE(rank(r).dials.empty()) << "rank " << r << " still dials";
    }
    EXPECT_LE(dials_, 20 * size() + 20) << "a storm of dials";
  }

  int32_t size() const { return static_cast<int32_t>(ranks_.size()); }

  std::mt19937_64 random_;
  int64_t now_ = 0, numbers_ = 0;
  int32_t dials_ = 0;
  std::multimap<int64_t, std::function<void()>> queue_;
  std::vector<std::string> hosts_;
  std::vector<Rank> ranks_;
  std::set<std::string> vanished_;
  std::set<int32_t> missed_;  ///< A rank of each host that vanished with somebody alive on it.
};

TEST(LivenessSimulation, EverySurvivorKnowsEveryVanishedHostAndNobodyElseIsLost) {
  constexpr uint64_t kSeeds = 5000;
  for (uint64_t seed = 0; seed < kSeeds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Job(seed).run();
  }
}

}  // namespace
}  // namespace corro::runtime
