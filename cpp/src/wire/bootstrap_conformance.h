// The contract of wire::Bootstrap as tests. A bootstrap instantiates it with a type like this:
//
//   struct DirectoryMeeting {  // one store, a handle per rank
//     std::unique_ptr<Bootstrap> join(int32_t rank);
//   };
//   INSTANTIATE_TYPED_TEST_SUITE_P(Directory, BootstrapConformance, DirectoryMeeting);
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "wire/bootstrap.h"

namespace corro::wire {

template <typename Meeting>
class BootstrapConformance : public ::testing::Test {
 protected:
  static Time soon() { return monotonic_now() + std::chrono::seconds(60); }
  static Bytes bytes_of(std::string_view text) {
    const auto view = std::as_bytes(std::span(text));
    return {view.begin(), view.end()};
  }
  Meeting meeting_;
};

TYPED_TEST_SUITE_P(BootstrapConformance);

TYPED_TEST_P(BootstrapConformance, WhatOneRankPutsAnotherGets) {
  const auto first = this->meeting_.join(0);
  const auto second = this->meeting_.join(1);
  ASSERT_TRUE(first->put("job/rank/0", this->bytes_of("here")).ok());
  EXPECT_EQ(second->get("job/rank/0", this->soon()).value(), this->bytes_of("here"));
  EXPECT_EQ(first->get("job/rank/0", this->soon()).value(), this->bytes_of("here"));
}

TYPED_TEST_P(BootstrapConformance, GetWaitsForALaterPut) {
  const auto first = this->meeting_.join(0);
  const auto second = this->meeting_.join(1);
  Result<Bytes> got = Status(Code::kUnknown, "not yet");
  {
    const std::jthread waiter([&] { got = first->get("late", this->soon()); });
    ASSERT_TRUE(second->put("late", this->bytes_of("value")).ok());
  }
  EXPECT_EQ(got.value(), this->bytes_of("value"));
}

TYPED_TEST_P(BootstrapConformance, AnInterruptEndsAGetAndTheStoreGoesOn) {
  const auto bootstrap = this->meeting_.join(0);
  int asked = 0;
  bootstrap->set_interrupted([&asked] { return ++asked == 2; });
  EXPECT_EQ(bootstrap->get("never", this->soon()).status().code(), Code::kCancelled);
  EXPECT_EQ(asked, 2);
  ASSERT_TRUE(bootstrap->put("never", this->bytes_of("after all")).ok());
  EXPECT_EQ(bootstrap->get("never", this->soon()).value(), this->bytes_of("after all"));
}

TYPED_TEST_P(BootstrapConformance, GetEndsAtItsDeadlineAndTheStoreGoesOn) {
  const auto bootstrap = this->meeting_.join(0);
  const auto missing = bootstrap->get("never", monotonic_now() + std::chrono::milliseconds(5));
  EXPECT_EQ(missing.status().code(), Code::kDeadlineExceeded);
  EXPECT_NE(missing.status().message().find("never"), std::string::npos);
  ASSERT_TRUE(bootstrap->put("never", this->bytes_of("after all")).ok());
  ASSERT_TRUE(bootstrap->put("other", this->bytes_of("x")).ok());
  EXPECT_EQ(bootstrap->get("other", this->soon()).value(), this->bytes_of("x"));
}

TYPED_TEST_P(BootstrapConformance, KeysAreWrittenOnce) {
  const auto first = this->meeting_.join(0);
  const auto second = this->meeting_.join(1);
  ASSERT_TRUE(first->put("key", this->bytes_of("one")).ok());
  EXPECT_TRUE(first->put("key", this->bytes_of("one")).ok());
  EXPECT_EQ(second->put("key", this->bytes_of("two")).code(), Code::kAlreadyExists);
  EXPECT_EQ(second->get("key", this->soon()).value(), this->bytes_of("one"));
}

TYPED_TEST_P(BootstrapConformance, KeysAndValuesMayHoldAnyBytesUpToTheirCaps) {
  const auto bootstrap = this->meeting_.join(0);
  const std::vector<std::string> keys = {"a/b",
                                         "a_b",
                                         "a b",
                                         "../a",
                                         ".",
                                         std::string(kMaxBootstrapKey, '/'),
                                         std::string(kMaxBootstrapKey, '.'),
                                         "\xff\x01"};
  for (const std::string& key : keys)
    ASSERT_TRUE(bootstrap->put(key, this->bytes_of(key)).ok()) << key;
  for (const std::string& key : keys)
    EXPECT_EQ(bootstrap->get(key, this->soon()).value(), this->bytes_of(key));

  const Bytes longest(kMaxBootstrapValue, std::byte{0});
  ASSERT_TRUE(bootstrap->put("longest", longest).ok());
  EXPECT_EQ(bootstrap->get("longest", this->soon()).value(), longest);
  ASSERT_TRUE(bootstrap->put("empty", {}).ok());
  EXPECT_EQ(bootstrap->get("empty", this->soon()).value(), Bytes());
}

TYPED_TEST_P(BootstrapConformance, WhatIsTooLongIsRefused) {
  const auto bootstrap = this->meeting_.join(0);
  const std::string long_key(kMaxBootstrapKey + 1, 'k');
  EXPECT_EQ(bootstrap->put(long_key, {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(bootstrap->get(long_key, this->soon()).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(bootstrap->put("", {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(bootstrap->put("k", Bytes(kMaxBootstrapValue + 1)).code(), Code::kInvalidArgument);
}

TYPED_TEST_P(BootstrapConformance, ManyRanksExchangeAllToAll) {
  constexpr int32_t kRanks = 8;
  std::vector<std::unique_ptr<Bootstrap>> joined;
  for (int32_t rank = 0; rank < kRanks; ++rank) joined.push_back(this->meeting_.join(rank));
  std::vector<int> received(kRanks, 0);
  {
    std::vector<std::jthread> threads;
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        Bootstrap& bootstrap = *joined[static_cast<size_t>(rank)];
        if (!bootstrap.put(fmt::format("rank/{}", rank), this->bytes_of(fmt::to_string(rank))).ok())
          return;
        for (int32_t peer = 0; peer < kRanks; ++peer) {
          const auto got = bootstrap.get(fmt::format("rank/{}", peer), this->soon());
          if (got.ok() && *got == this->bytes_of(fmt::to_string(peer)))
            ++received[static_cast<size_t>(rank)];
        }
      });
    }
  }
  EXPECT_EQ(received, std::vector<int>(kRanks, kRanks));
}

REGISTER_TYPED_TEST_SUITE_P(BootstrapConformance, WhatOneRankPutsAnotherGets, GetWaitsForALaterPut,
                            AnInterruptEndsAGetAndTheStoreGoesOn,
                            GetEndsAtItsDeadlineAndTheStoreGoesOn, KeysAreWrittenOnce,
                            KeysAndValuesMayHoldAnyBytesUpToTheirCaps, WhatIsTooLongIsRefused,
                            ManyRanksExchangeAllToAll);

}  // namespace corro::wire
