#include "coordinator/win_lead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <utility>
#include <vector>

namespace corro::coordinator {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Answers as it was told to, and then gives the lead.
class ToldStore final : public coord::RecordStore {
 public:
  using Answer = Result<std::optional<uint64_t>>;

  explicit ToldStore(std::vector<Answer> answers) : answers_(answers.begin(), answers.end()) {}

  [[nodiscard]] Answer try_lead(const std::string& /*name*/) override {
    if (answers_.empty()) return std::optional<uint64_t>(7);
    Answer answer = std::move(answers_.front());
    answers_.pop_front();
    return answer;
  }
  [[nodiscard]] Result<std::string> leader() override { return std::string("host1"); }
  [[nodiscard]] Result<std::string> read() override { return std::string(); }
  [[nodiscard]] Status write(const std::string& /*record*/) override { return {}; }
  [[nodiscard]] Status renew() override { return {}; }
  [[nodiscard]] Time leads_until() const override { return Time::never(); }
  void resign() override {}

 private:
  std::deque<Answer> answers_;
};

class WinLead : public testing::Test {
 protected:
  Result<uint64_t> win(std::vector<ToldStore::Answer> answers, bool was_let_in) {
    ToldStore store(std::move(answers));
    return win_lead(store, {.name = "me",
                            .was_let_in = was_let_in,
                            .say = [this](const std::string& line) { said_.push_back(line); },
                            .pause = [this] { ++pauses_; }});
  }

  const Status forbidden_{Code::kPermissionDenied, "no right to get leases"};
  const Status unknown_{Code::kUnauthenticated, "401 Unauthorized"};
  std::vector<std::string> said_;
  int pauses_ = 0;
};

TEST_F(WinLead, ARefusalIsTheEndOfOneThatWasNeverLetIn) {
  for (const Status& refusal : {forbidden_, unknown_})
    EXPECT_EQ(win({refusal}, /*was_let_in=*/false).status().code(), refusal.code());
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(WinLead, ARefusalThatPassesIsSaidOnceAndWaitedFor) {
  EXPECT_EQ(*win({forbidden_, forbidden_, forbidden_, unknown_}, /*was_let_in=*/true), 7U);
  EXPECT_THAT(said_, ElementsAre("no right to get leases", "401 Unauthorized"));
  EXPECT_EQ(pauses_, 4);
}

TEST_F(WinLead, WhoStandsByWasLetIn) {
  EXPECT_EQ(*win({std::optional<uint64_t>(), forbidden_}, /*was_let_in=*/false), 7U);
  EXPECT_THAT(said_, ElementsAre("host1 leads; this one stands by", "no right to get leases"));
}

TEST_F(WinLead, WhatNoTimeMendsIsTheEnd) {
  const Status broken{Code::kDataLoss, "it is no term"};
  EXPECT_EQ(win({broken}, /*was_let_in=*/true).status().code(), broken.code());
}

}  // namespace
}  // namespace corro::coordinator
