#include "dashboard/inspection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "dashboard/inspection_pages.h"

namespace corro::dashboard {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;
using Json = nlohmann::json;

constexpr Time kAsked{seconds(100)};
constexpr UnixTime kAskedAt{seconds(5000)};

/// What the job says, and what it was asked.
struct FakeJob {
  Status asked;
  Result<std::string> says = std::string();
  size_t received = 0;
  std::vector<std::pair<Inspected, uint32_t>> questions;
};

class FakeInquirer final : public Inquirer {
 public:
  explicit FakeInquirer(FakeJob& job) : job_(job) {}
  Status ask(Inspected what, uint32_t steps) override {
    job_.questions.emplace_back(what, steps);
    return job_.asked;
  }
  Result<std::string> read() override { return job_.says; }
  [[nodiscard]] size_t received() const override { return job_.received; }

 private:
  FakeJob& job_;
};

TEST(Inspection, OneQuestionAtATimeAndItsAnswerIsKept) {
  FakeJob job;
  Inspection inspection(std::make_unique<FakeInquirer>(job));
  EXPECT_FALSE(inspection.last(Inspected::kStacks).asked.has_value());
  ASSERT_TRUE(inspection.ask(Inspected::kStacks, 1, kAsked, kAskedAt).ok());
  ASSERT_TRUE(inspection.ask(Inspected::kStacks, 1, kAsked, kAskedAt).ok()) << "somebody else";
  EXPECT_EQ(inspection.ask(Inspected::kTrace, 2, kAsked, kAskedAt).code(),
            Code::kFailedPrecondition);
  EXPECT_EQ(job.questions.size(), 1U);
  inspection.look(kAsked + seconds(1));
  EXPECT_TRUE(inspection.is_asking(Inspected::kStacks));
  job.says = std::string("rank 0\n  main thread\n");
  inspection.look(kAsked + seconds(2));
  EXPECT_FALSE(inspection.is_asking(Inspected::kStacks));
  EXPECT_EQ(inspection.last(Inspected::kStacks).text, "rank 0\n  main thread\n");
  EXPECT_EQ(inspection.last(Inspected::kStacks).asked, kAskedAt);
  ASSERT_TRUE(inspection.ask(Inspected::kTrace, 2, kAsked, kAskedAt).ok());
  EXPECT_EQ(job.questions.back(), std::pair(Inspected::kTrace, uint32_t{2}));
  EXPECT_EQ(inspection.last(Inspected::kStacks).text, "rank 0\n  main thread\n");
}

TEST(Inspection, AQuestionWithoutAnAnswerIsOverAndSaysWhy) {
  FakeJob job;
  Inspection inspection(std::make_unique<FakeInquirer>(job));
  ASSERT_TRUE(inspection.ask(Inspected::kStacks, 1, kAsked, kAskedAt).ok());
  inspection.look(kAsked + seconds(9));
  EXPECT_TRUE(inspection.is_asking(Inspected::kStacks));
  inspection.look(kAsked + seconds(10));
  EXPECT_EQ(inspection.last(Inspected::kStacks).why, "the launcher does not answer");
  job.says = Status(Code::kUnavailable, "job 3f2a has ended");
  ASSERT_TRUE(inspection.ask(Inspected::kStacks, 1, kAsked, kAskedAt).ok());
  inspection.look(kAsked);
  EXPECT_EQ(inspection.last(Inspected::kStacks).why, "job 3f2a has ended");
  job.asked = Status(Code::kUnavailable, "too many ask");
  ASSERT_TRUE(inspection.ask(Inspected::kTrace, 1, kAsked, kAskedAt).ok());
  EXPECT_EQ(inspection.last(Inspected::kTrace).why, "too many ask");
}

TEST(Inspection, AnAnswerThatComesSlowlyIsWaitedFor) {
  FakeJob job;
  Inspection inspection(std::make_unique<FakeInquirer>(job));
  ASSERT_TRUE(inspection.ask(Inspected::kTrace, 1, kAsked, kAskedAt).ok());
  for (int i = 1; i < 10; ++i) {
    job.received += 1000;
    inspection.look(kAsked + i * seconds(9));
    EXPECT_TRUE(inspection.is_asking(Inspected::kTrace));
  }
  inspection.look(kAsked + 9 * seconds(9) + seconds(10));
  EXPECT_EQ(inspection.last(Inspected::kTrace).why, "the launcher does not answer");
}

TEST(Inspection, AQuestionWithoutAnAnswerLeavesTheOneBefore) {
  FakeJob job;
  Inspection inspection(std::make_unique<FakeInquirer>(job));
  job.says = std::string("{}");
  ASSERT_TRUE(inspection.ask(Inspected::kTrace, 1, kAsked, kAskedAt).ok());
  inspection.look(kAsked);
  job.asked = Status(Code::kUnavailable, "too many ask");
  ASSERT_TRUE(inspection.ask(Inspected::kTrace, 1, kAsked, kAskedAt + seconds(5)).ok());
  EXPECT_EQ(inspection.last(Inspected::kTrace).why, "too many ask");
  EXPECT_EQ(inspection.last(Inspected::kTrace).asked, kAskedAt);
  EXPECT_EQ(trace_file_page(inspection).text, "{}");
}

TEST(Inspection, ItsPagesSayHowFarItIs) {
  FakeJob job;
  Inspection inspection(std::make_unique<FakeInquirer>(job));
  const auto state = [&](Inspected what) {
    return Json::parse(answer_page(inspection, what, kAsked).text);
  };
  EXPECT_EQ(state(Inspected::kStacks)["state"], "none");
  EXPECT_EQ(ask_page(inspection, Inspected::kStacks, {}, kAsked, kAskedAt).status, 202);
  EXPECT_EQ(state(Inspected::kStacks)["state"], "asked");
  EXPECT_EQ(ask_page(inspection, Inspected::kTrace, {}, kAsked, kAskedAt).status, 409);
  job.says = std::string("rank 0\xff\n");
  EXPECT_EQ(state(Inspected::kStacks)["text"], "rank 0\xEF\xBF\xBD\n");
  EXPECT_EQ(state(Inspected::kStacks)["asked"], 5000);
  EXPECT_EQ(trace_file_page(inspection).status, 404);
  EXPECT_EQ(ask_page(inspection, Inspected::kTrace, {{"steps", "7"}}, kAsked, kAskedAt).status,
            202);
  EXPECT_EQ(job.questions.back().second, 7U);
  job.says = std::string("{\"traceEvents\":[]}");
  EXPECT_EQ(state(Inspected::kTrace)["state"], "answered");
  EXPECT_FALSE(state(Inspected::kTrace).contains("text")) << "the file is a page of its own";
  EXPECT_EQ(trace_file_page(inspection).text, "{\"traceEvents\":[]}");
  for (const char* wrong : {"0", "-1", "x", "1000001", "7x"}) {
    const http::Page refused =
        ask_page(inspection, Inspected::kTrace, {{"steps", wrong}}, kAsked, kAskedAt);
    EXPECT_EQ(refused.status, 400) << wrong;
    EXPECT_THAT(refused.text, HasSubstr("steps: give a number from 1 to")) << wrong;
  }
}

TEST(Inspection, OfAJobThatIsOverThereIsNobodyToAsk) {
  Inspection inspection(nullptr);
  EXPECT_EQ(ask_page(inspection, Inspected::kStacks, {}, kAsked, kAskedAt).status, 409);
  EXPECT_EQ(Json::parse(answer_page(inspection, Inspected::kStacks, kAsked).text)["state"], "none");
}

}  // namespace
}  // namespace corro::dashboard
