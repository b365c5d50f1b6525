#include "kube/client/lease.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace corro::kube {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

LeaseOptions options_of(std::string me) {
  LeaseOptions options;
  options.key = {"corro", "operator"};
  options.me = std::move(me);
  return options;
}

/// The API server's part: a replace needs the version.
struct LeaseStore {
  std::optional<LeaseRecord> record = {};
  int64_t version = 0;

  bool put(LeaseRecord sent) {
    const std::string have = record ? record->version : "";
    if (sent.version != have) return false;
    sent.version = std::to_string(++version);
    record = std::move(sent);
    return true;
  }
};

/// A candidate with a wall clock of its own and answers that come late, or not at all.
struct Candidate {
  LeaseOptions options;
  Duration skew;
  LeaseView view = {};
  std::optional<LeaseRecord> answer = {};  ///< Under way.
  Time sent = {};
  Time arrives = {};
  bool is_lost = false;
  Time next = {};

  [[nodiscard]] bool leads(Time now) const {
    return view.leads && now < leads_until(view, options);
  }
};

void step(Candidate& one, LeaseStore& store, Time now, std::mt19937& random) {
  if (one.answer && now >= one.arrives) {
    if (!one.is_lost) note_renewed(one.view, *one.answer, one.sent, now);
    one.answer.reset();
  }
  if (one.answer || now < one.next) return;
  one.next = now + one.options.retry;
  if (!one.view.leads) observe(one.view, store.record, now);
  const UnixTime wall(
      std::chrono::duration_cast<std::chrono::microseconds>(now.since_start + one.skew));
  const LeaseDecision decision = decide(one.view, one.options, now, wall);
  if (decision.action == LeaseAction::kLost) one.view.leads = false;
  if (!decision.record) return;
  if (!store.put(*decision.record)) {
    observe(one.view, store.record, now);
    return;
  }
  one.answer = store.record;
  one.sent = now;
  one.is_lost = random() % 4 == 0;
  one.arrives = now + milliseconds(random() % (random() % 4 == 0 ? 20000 : 2000));
}

TEST(Lease, NeverHasTwoLeadersAndSoonHasOne) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    LeaseStore store;
    std::vector<Candidate> all = {{options_of("a"), hours(1)},
                                  {options_of("b"), -hours(1)},
                                  {options_of("c"), Duration::zero()}};
    int led = 0;
    Time now;
    for (int tick = 0; tick < 3000; ++tick, now = now + milliseconds(100)) {
      for (Candidate& one : all) step(one, store, now, random);
      const auto leaders =
          std::ranges::count_if(all, [now](const Candidate& one) { return one.leads(now); });
      ASSERT_LE(leaders, 1) << "seed " << seed << " tick " << tick;
      led += static_cast<int>(leaders);
    }
    EXPECT_GT(led, 500) << "seed " << seed;
  }
}

TEST(Lease, IsTakenOverWhenItsRecordRestsWhateverTheClocksSay) {
  LeaseStore store;
  const UnixTime epoch{};
  LeaseView first;
  observe(first, {}, {});
  const auto create = decide(first, options_of("a"), {}, epoch + hours(1));
  ASSERT_EQ(create.action, LeaseAction::kCreate);
  ASSERT_TRUE(store.put(*create.record));
  LeaseView second;
  const Time begin = Time{} + hours(5);
  observe(second, store.record, begin);
  const LeaseOptions b = options_of("b");
  const UnixTime hour_behind = epoch;
  EXPECT_EQ(decide(second, b, begin + seconds(14), hour_behind).action, LeaseAction::kWait);
  observe(second, store.record, begin + seconds(14));  // Unchanged.
  const auto take = decide(second, b, begin + seconds(15), hour_behind);
  ASSERT_EQ(take.action, LeaseAction::kReplace);
  EXPECT_EQ(take.reason, "held by \"a\", unchanged for 15 s");
  EXPECT_EQ(take.record->transitions, 1);
  // The holder renewed at the last moment: the replace is of an old version.
  LeaseRecord renewed = *store.record;
  renewed.renewed = "later";
  ASSERT_TRUE(store.put(renewed));
  EXPECT_FALSE(store.put(*take.record));
  observe(second, store.record, begin + seconds(16));
  EXPECT_EQ(decide(second, b, begin + seconds(30), hour_behind).action, LeaseAction::kWait);
}

TEST(Lease, LeaderStopsBeforeAnotherMayBegin) {
  const LeaseOptions a = options_of("a");
  LeaseView view;
  LeaseRecord record;
  record.holder = "a";
  record.duration = a.duration;
  const Time sent = Time{} + seconds(100);
  note_renewed(view, record, sent, sent + seconds(5));
  EXPECT_EQ(decide(view, a, sent + seconds(1), {}).action, LeaseAction::kWait);
  EXPECT_EQ(decide(view, a, sent + seconds(9), {}).action, LeaseAction::kReplace);
  const auto lost = decide(view, a, sent + seconds(10), {});
  EXPECT_EQ(lost.action, LeaseAction::kLost);
  EXPECT_EQ(lost.reason, "no renewal was answered for 10 s");
  record.holder = "b";
  observe(view, record, sent + seconds(3));
  EXPECT_EQ(decide(view, a, sent + seconds(3), {}).reason, "taken over by \"b\"");
  observe(view, {}, sent + seconds(3));
  EXPECT_EQ(decide(view, a, sent + seconds(3), {}).action, LeaseAction::kLost);
}

TEST(Lease, ReleasedOneIsTakenAtOnce) {
  LeaseView view;
  observe(view, LeaseRecord{}, {});
  const auto take = decide(view, options_of("b"), {}, {});
  EXPECT_EQ(take.action, LeaseAction::kReplace);
  EXPECT_EQ(take.reason, "the Lease was released");
  LeaseRecord own;
  own.holder = "b";
  observe(view, own, {});
  EXPECT_EQ(decide(view, options_of("b"), {}, {}).reason, "an answer to its own renewal was lost");
}

TEST(Lease, IsReadBackAsItWasWritten) {
  const LeaseRecord record{"a \"quoted\"",
                           seconds(15),
                           "2026-11-24T20:00:00.000000Z",
                           "2026-11-24T20:00:01.000000Z",
                           3,
                           "77"};
  const auto read = read_lease(write_lease(record, {"corro", "operator"}), "lease");
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(*read, record);
  EXPECT_EQ(*read_lease(Json::object(), "lease"), LeaseRecord{});
  EXPECT_EQ(*read_lease(Json::parse(R"({"spec":{"holderIdentity":null}})"), "lease"),
            LeaseRecord{});
}

TEST(Lease, RefusesRecordsOfAnotherShape) {
  for (const char* text :
       {R"({"spec":[]})", R"({"spec":{"holderIdentity":1}})",
        R"({"spec":{"holderIdentity":"a\nb"}})", R"({"spec":{"leaseDurationSeconds":-1}})",
        R"({"spec":{"leaseDurationSeconds":3601}})",
        R"({"spec":{"leaseDurationSeconds":18446744073709551615}})",
        R"({"spec":{"leaseDurationSeconds":1.5}})", R"({"spec":{"leaseTransitions":"1"}})"}) {
    const auto read = read_lease(Json::parse(text), "lease");
    EXPECT_EQ(read.status().code(), Code::kInvalidArgument) << text;
    EXPECT_TRUE(read.status().message().starts_with("lease: spec")) << read.status().message();
  }
}

TEST(Lease, RefusesOptionsThatCannotBeSafe) {
  EXPECT_TRUE(check(options_of("a")).ok());
  const auto broken = [](auto change) {
    LeaseOptions options = options_of("a");
    change(options);
    return check(options).code() == Code::kInvalidArgument;
  };
  EXPECT_TRUE(broken([](LeaseOptions& o) { o.me = ""; }));
  EXPECT_TRUE(broken([](LeaseOptions& o) { o.key.space = ""; }));
  EXPECT_TRUE(broken([](LeaseOptions& o) { o.renew_within = o.duration; }));
  EXPECT_TRUE(broken([](LeaseOptions& o) { o.retry = o.renew_within; }));
  EXPECT_TRUE(broken([](LeaseOptions& o) { o.duration = milliseconds(15500); }));
}

}  // namespace
}  // namespace corro::kube
