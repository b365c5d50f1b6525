#include "kube/job/resource_totals.h"

#include <gtest/gtest.h>

#include <string>

namespace corro::kube {
namespace {

std::string read_and_written(const char* text) {
  const auto amount = parse_amount(text);
  return amount ? amount_text(*amount) : "none";
}

TEST(Amounts, AreReadExactly) {
  EXPECT_EQ(read_and_written("2"), "2");
  EXPECT_EQ(read_and_written("0"), "0");
  EXPECT_EQ(read_and_written("0.5"), "500m");
  EXPECT_EQ(read_and_written("1500m"), "1500m");
  EXPECT_EQ(read_and_written("2000m"), "2");
  EXPECT_EQ(read_and_written("4Gi"), "4294967296");
  EXPECT_EQ(read_and_written("1.5Ki"), "1536");
  EXPECT_EQ(read_and_written("1e3"), "1000");
  EXPECT_EQ(read_and_written("7n"), "7n");
  EXPECT_EQ(read_and_written("1Ei"), "1152921504606846976");
}

TEST(Amounts, ThatAreNoneAreRefused) {
  for (const char* text : {"", "Gi", "-1", "1.2.3", "1 Gi", "1gi", "2Ei", "1e99", "1e", "4.5.",
                           "1111111111111111111111111111111111"})
    EXPECT_EQ(read_and_written(text), "none") << text;
}

TEST(ResourceTotals, AddRequestsAndWhereThereAreNoneLimits) {
  const Json both = Json::parse(R"({"spec": {
      "initContainers": [{"resources": {"requests": {"cpu": "9"}}}],
      "containers": [
        {"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": 2, "nvidia.com/gpu": 1}}},
        {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}, {}]}})");
  ResourceTotals totals;
  totals.add(both, 3);
  totals.add(Json::object(), 5);
  EXPECT_EQ(totals.to_json(),
            Json::parse(R"({"cpu": "4500m", "memory": "3221225472", "nvidia.com/gpu": "3"})"));
}

}  // namespace
}  // namespace corro::kube
