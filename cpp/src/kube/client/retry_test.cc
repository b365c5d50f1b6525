#include "kube/client/retry.h"
#include "base/unix_time.h"

#include <gtest/gtest.h>

#include "kube/client/resource.h"

namespace corro::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

UnixTime retry_test_now() { return *parse_rfc3339("2026-11-24T20:00:00Z"); }

TEST(Retry, FollowsTheTable) {
  struct Row {
    int status;
    Headers headers;
    bool may_repeat;
    uint32_t attempt;
    std::optional<Duration> delay;
  };
  const Headers none;
  const Headers seven{{"retry-after", "7"}};
  const Headers date{{"retry-after", "Tue, 24 Nov 2026 20:00:09 GMT"}};
  const Headers past{{"retry-after", "Tue, 24 Nov 2026 19:00:00 GMT"}};
  const Headers nonsense{{"retry-after", "soon"}};
  const Headers long_time{{"retry-after", "301"}};
  const std::vector<Row> table = {
      {429, seven, false, 0, seconds(7)},
      {429, date, false, 0, seconds(9)},
      {429, past, false, 0, seconds(0)},
      {429, nonsense, false, 0, milliseconds(50)},
      {429, long_time, true, 0, {}},
      {429, none, false, 2, milliseconds(200)},
      {503, seven, false, 0, seconds(7)},
      {503, none, false, 0, {}},
      {503, none, true, 0, milliseconds(50)},
      {500, none, true, 1, milliseconds(100)},
      {502, none, true, 0, milliseconds(50)},
      {504, none, true, 0, milliseconds(50)},
      {0, none, true, 0, milliseconds(50)},
      {0, none, false, 0, {}},
      {401, none, false, 0, seconds(0)},
      {401, none, false, 1, {}},
      {400, none, true, 0, {}},
      {403, none, true, 0, {}},
      {404, none, true, 0, {}},
      {409, seven, true, 0, {}},
      {410, none, true, 0, {}},
      {422, none, true, 0, {}},
      {429, seven, true, kMostAttempts - 1, {}},
  };
  for (const Row& row : table) {
    const FailedAttempt failed{row.status, row.headers, row.may_repeat};
    EXPECT_EQ(next_delay(failed, row.attempt, 0, retry_test_now()), row.delay)
        << row.status << " attempt " << row.attempt;
  }
}

TEST(Retry, NeverComesBeforeRetryAfter) {
  for (const double random : {0.0, 0.3, 0.999}) {
    const auto delay =
        next_delay({429, {{"retry-after", "10"}}, true}, 0, random, retry_test_now());
    ASSERT_TRUE(delay);
    EXPECT_GE(*delay, seconds(10));
    EXPECT_LE(*delay, seconds(11));
  }
}

TEST(Retry, BacksOffBetweenHalfAndAllOfADoublingTime) {
  EXPECT_EQ(back_off(0, 0, milliseconds(100), seconds(10)), milliseconds(50));
  EXPECT_EQ(back_off(3, 0, milliseconds(100), seconds(10)), milliseconds(400));
  EXPECT_LE(back_off(3, 0.999, milliseconds(100), seconds(10)), milliseconds(800));
  EXPECT_EQ(back_off(4000000000U, 0, milliseconds(100), seconds(10)), seconds(5));
}

TEST(TokenBucket, LetsABurstPassAndThenSoManyASecond) {
  TokenBucket bucket(10, 3);
  Time now;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(bucket.take(now), Duration::zero());
  EXPECT_EQ(bucket.take(now), milliseconds(100));
  EXPECT_EQ(bucket.take(now), milliseconds(200));  // Behind the one before.
  now = now + milliseconds(200);
  EXPECT_EQ(bucket.take(now), milliseconds(100));
  now = now + std::chrono::hours(1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(bucket.take(now), Duration::zero());
  EXPECT_GT(bucket.take(now), Duration::zero());
}

TEST(Paths, FollowTheTable) {
  const ResourceType jobs{"kubeflow.org", "v2beta1", "mpijobs"};
  struct Row {
    ResourceType type;
    ObjectKey key;
    std::string subresource;
    std::string path;  ///< "" is refused.
  };
  const std::vector<Row> table = {
      {kPods, {"default", "a-0"}, "", "/api/v1/namespaces/default/pods/a-0"},
      {kPods, {"default", "a-0"}, "status", "/api/v1/namespaces/default/pods/a-0/status"},
      {kPods, {"default", ""}, "", "/api/v1/namespaces/default/pods"},
      {kPods, {}, "", "/api/v1/pods"},
      {kNodes, {"", "n"}, "", "/api/v1/nodes/n"},
      {kNodes, {"ignored", "n"}, "", "/api/v1/nodes/n"},
      {jobs, {"t", "j"}, "status", "/apis/kubeflow.org/v2beta1/namespaces/t/mpijobs/j/status"},
      {kLeases, {"corro", "x"}, "", "/apis/coordination.k8s.io/v1/namespaces/corro/leases/x"},
      {kPods, {"", "a"}, "", ""},
      {kPods, {"a/b", "c"}, "", ""},
      {kPods, {"a", "../c"}, "", ""},
      {kPods, {"a", ".."}, "", ""},
      {kPods, {"a", "c?x=1"}, "", ""},
      {kPods, {"a", "c\n"}, "", ""},
      {kPods, {"a", std::string(254, 'a')}, "", ""},
      {kPods, {"a", ""}, "status", ""},
      {kPods, {"a", "b"}, "x/y", ""},
  };
  for (const Row& row : table) {
    const auto path = path_of(row.type, row.key, row.subresource);
    EXPECT_EQ(path.ok() ? *path : "", row.path) << row.key.space << " " << row.key.name;
    EXPECT_EQ(path.status().code(), row.path.empty() ? Code::kInvalidArgument : Code::kOk);
  }
}

TEST(Paths, EncodeQueries) {
  EXPECT_EQ(query_of({}), "");
  EXPECT_EQ(query_of({{"a", ""}, {"labelSelector", "app=x,role!=y z"}, {"limit", "5"}}),
            "?labelSelector=app%3Dx%2Crole%21%3Dy%20z&limit=5");
}

}  // namespace
}  // namespace corro::kube
