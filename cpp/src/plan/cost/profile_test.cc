#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>

#include "plan/cost/profile_file.h"

namespace corro::plan {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Profile measured() {
  return {.device = "core",
          .dtype = DType::kF32,
          .update = 1e-9,
          .layers = {{"Block", {{1, 0.25, 0.5}, {2, 0.375, 0.75}, {8, 1.5, 4.5}}},
                     {"Head", {{2, 0.1, 0.2}}}}};
}

TEST(Profile, LiesOnTheLineBetweenWhatWasMeasured) {
  const Profile profile = measured();
  EXPECT_EQ(*profile.find("Block", 1), (LayerTime{1, 0.25, 0.5}));
  EXPECT_EQ(*profile.find("Block", 2), (LayerTime{2, 0.375, 0.75}));
  EXPECT_EQ(*profile.find("Block", 5), (LayerTime{5, 0.9375, 2.625}));
  EXPECT_EQ(*profile.find("Block", 14), (LayerTime{14, 2.625, 8.25}));
  EXPECT_EQ(*profile.find("Block", 0.5), (LayerTime{0.5, 0.1875, 0.375}));
  EXPECT_DOUBLE_EQ(profile.find("Head", 6)->backward, 0.6);
  EXPECT_FALSE(profile.find("Embedding", 1).has_value());
}

TEST(Profile, IsNeverNegative) {
  const Profile profile{.layers = {{"Block", {{4, 0.1, 0.1}, {8, 1, 1}}}}};
  EXPECT_EQ(profile.find("Block", 1)->forward, 0);
}

/// The file of measured(), as the torch front end writes it.
constexpr std::string_view kMeasuredFile = R"({
  "corro_profile": 1,
  "device": "core",
  "dtype": "f32",
  "update": 1e-09,
  "layers": {
    "Block": [
      {"samples": 1.0, "forward": 0.25, "backward": 0.5},
      {"samples": 2.0, "forward": 0.375, "backward": 0.75},
      {"samples": 8.0, "forward": 1.5, "backward": 4.5}
    ],
    "Head": [{"samples": 2.0, "forward": 0.1, "backward": 0.2}]
  }
}
)";

TEST(ProfileFile, IsReadToTheBit) {
  const auto profile = read_profile(kMeasuredFile, "profile.json");
  ASSERT_TRUE(profile.ok()) << profile.status().message();
  EXPECT_EQ(*profile, measured());
}

/// A file with one text in the place of another.
std::string changed_profile(const std::string& from, const std::string& to) {
  std::string text(kMeasuredFile);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ProfileFile, MistakesAreOneLineWithTheField) {
  const std::pair<std::string, std::string> mistakes[] = {
      {"", "profile.json: "},
      {"{}", "corro_profile: "},
      {changed_profile("\"corro_profile\": 1", "\"corro_profile\": 2"), "corro_profile: "},
      {changed_profile("0.375", "NaN"), "profile.json: "},
      {changed_profile("0.375", "-1"), "layers.Block[1].forward: "},
      {changed_profile("0.375", "1e999"), "profile.json"},
      {changed_profile("0.375", "\"long\""), "layers.Block[1].forward: "},
      {changed_profile("\"samples\": 8.0", "\"samples\": 2.0"),
       "layers.Block[2].samples: must be more"},
      {changed_profile("\"f32\"", "\"f33\""), "dtype: "},
      {changed_profile("\"Head\"", "\"Block\""), "Block"},
      {R"({"corro_profile":1,"device":"d","dtype":"f32","update":1,"layers":{}})", "layers: "},
      {R"({"corro_profile":1,"device":"d","dtype":"f32","update":1,"layers":{"a":[]}})",
       "layers.a: must be a list of at least one"},
      {std::string(kMostProfileBytes + 1, ' '), "profile.json: is longer than"},
  };
  for (const auto& [text, said] : mistakes) {
    const auto profile = read_profile(text, "profile.json");
    ASSERT_FALSE(profile.ok()) << text;
    EXPECT_EQ(profile.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(profile.status().message(), StartsWith("profile.json")) << text;
    EXPECT_THAT(profile.status().message(), HasSubstr(said)) << text;
    EXPECT_THAT(profile.status().message(), testing::Not(HasSubstr("\n")));
  }
}

}  // namespace
}  // namespace corro::plan
