#include "kube/user/operator_hint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::kube {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

const Time kCreated = Time() + std::chrono::hours(1);

Json unseen() { return Json::parse(R"({"spec": {}})"); }

Json seen() {
  return Json::parse(R"({"status": {"conditions": [{"type": "Created", "status": "True"}]}})");
}

TEST(OperatorHint, IsSaidOnceAfterFiveSecondsWithoutAnyCondition) {
  OperatorHint hint(kCreated);
  EXPECT_EQ(hint.look(unseen(), kCreated + seconds(4)), "");
  EXPECT_THAT(hint.look(unseen(), kCreated + seconds(5)),
              HasSubstr("no operator has seen the job"));
  EXPECT_EQ(hint.look(unseen(), kCreated + seconds(6)), "");
}

TEST(OperatorHint, IsNeverSaidOfAJobThatAnOperatorHasSeen) {
  OperatorHint hint(kCreated);
  EXPECT_EQ(hint.look(seen(), kCreated + seconds(1)), "");
  EXPECT_EQ(hint.look(unseen(), kCreated + seconds(9)), "") << "an old view of it";
}

}  // namespace
}  // namespace corro::kube
