#include "base/nearest_name.h"

#include <gtest/gtest.h>

namespace corro {
namespace {

TEST(NearestName, IsWithinTwoLettersOrOneForAShortName) {
  const std::set<std::string> known = {"nvlink", "pcie", "rackline", "run"};
  EXPECT_EQ(nearest_name("nvlnk", known), "nvlink");
  EXPECT_EQ(nearest_name("rrackilne", known), "");  // A swap is two letters, so this is three away.
  EXPECT_EQ(nearest_name("rackilne", known), "rackline");
  EXPECT_EQ(nearest_name("rum", known), "run");
  EXPECT_EQ(nearest_name("rm", known), "");
  EXPECT_EQ(nearest_name("icpe", known), "");
  EXPECT_EQ(nearest_name("", known), "");
  EXPECT_EQ(nearest_name("nvlink", {}), "");
}

TEST(NearestName, OfTwoAsNearIsTheFirst) {
  EXPECT_EQ(nearest_name("rank7", {"rank9", "rank8"}), "rank8");
}

TEST(NearestName, ThatBeginsWithWhatWasGivenWinsOverANearerOne) {
  const std::set<std::string> known = {"h100-80gb", "h200", "a10", "a100-40gb", "a100-80gb"};
  EXPECT_EQ(nearest_name("h100", known), "h200");
  EXPECT_EQ(completed_or_nearest_name("h100", known), "h100-80gb");
  EXPECT_EQ(completed_or_nearest_name("a100", known), "a100-40gb");
  EXPECT_EQ(completed_or_nearest_name("h20", known), "h200");
  EXPECT_EQ(completed_or_nearest_name("h300", known), "h200");
  EXPECT_EQ(completed_or_nearest_name("h1", known), "");
  EXPECT_EQ(completed_or_nearest_name("", known), "");
  EXPECT_EQ(completed_or_nearest_name("--seq", {"--sequence", "--sequence-parallel"}),
            "--sequence");
}

}  // namespace
}  // namespace corro
