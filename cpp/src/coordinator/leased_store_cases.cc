#include "coordinator/leased_store_cases.h"

#include <thread>

#include "base/stop.h"

namespace corro::coordinator {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::optional<uint64_t> lead(coord::RecordStore& store, const std::string& name) {
  const auto term = store.try_lead(name);
  EXPECT_TRUE(term.ok()) << term.status().to_string();
  return term.ok() ? *term : std::nullopt;
}

void expect_that_a_lease_ends(coord::RecordStoreWorld& world) {
  const auto first = world.open();
  const auto second = world.open();
  const auto term = lead(*first, "first");
  ASSERT_TRUE(term);
  ASSERT_TRUE(first->write("old").ok());
  // Seven renewals: longer than a lease.
  for (int i = 0; i < 7; ++i) {
    (void)wait_for_stop({}, seconds(1));
    const Status renewed = first->renew();
    ASSERT_TRUE(renewed.ok()) << renewed.to_string();
    ASSERT_FALSE(lead(*second, "second"));
  }
  const Time until = first->leads_until();
  const Time patience = monotonic_now() + seconds(15);
  std::optional<uint64_t> next;
  while (!next && monotonic_now() < patience) {
    (void)wait_for_stop({}, milliseconds(100));
    next = lead(*second, "second");
  }
  ASSERT_TRUE(next);
  EXPECT_GT(*next, *term);
  EXPECT_GT(monotonic_now(), until + coord::kLeaseMargin / 2);
  EXPECT_EQ(first->write("stale").code(), Code::kAborted);
  EXPECT_EQ(*second->read(), "old");
}

void expect_that_one_of_two_leads(coord::RecordStoreWorld& world) {
  const auto first = world.open();
  const auto second = world.open();
  uint64_t last = 0;
  for (int round = 0; round < 20; ++round) {
    std::optional<uint64_t> one;
    std::thread other([&] { one = lead(*first, "first"); });
    const std::optional<uint64_t> two = lead(*second, "second");
    other.join();
    ASSERT_NE(one.has_value(), two.has_value());
    const uint64_t term = one ? *one : *two;
    EXPECT_GT(term, last);
    last = term;
    EXPECT_EQ(first->write("first").ok(), one.has_value());
    EXPECT_EQ(second->write("second").ok(), two.has_value());
    EXPECT_EQ(*first->read(), one ? "first" : "second");
    first->resign();
    second->resign();
  }
}

}  // namespace corro::coordinator
