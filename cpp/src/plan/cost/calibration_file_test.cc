#include "plan/cost/calibration_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace corro::plan {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(CalibrationFile, IsReadAsItWasWritten) {
  Calibration calibration{.matmul_efficiency = 1.0 / 3,
                          .memory_efficiency = 0.05,
                          .link_efficiency = 1,
                          .network_efficiency = 0.123456789012345678,
                          .collective_seconds = 1e-6,
                          .operator_seconds = 1e-7};
  for (int i = 0; i < 2; ++i) {
    const auto again = read_calibration(write_calibration(calibration), "params.json");
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(*again, calibration);
    calibration = {};
  }
}

/// A file with one text in the place of another.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = write_calibration({.matmul_efficiency = 0.77});
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(CalibrationFile, MistakesAreOneLineWithTheField) {
  const std::pair<std::string, std::string> mistakes[] = {
      {"", "params.json: "},
      {"[]", "params.json: "},
      {"{}", "corro_calibration: "},
      {changed("\"corro_calibration\": 1", "\"corro_calibration\": 2"), "corro_calibration: "},
      {changed("0.77", "NaN"), "params.json: "},
      {changed("0.77", "1.5"), "params.json:3: matmul_efficiency: "},
      {changed("0.77", "0"), "params.json:3: matmul_efficiency: "},
      {changed("0.77", "1e999"), "params.json"},
      {changed("0.77", "\"fast\""), "params.json:3: matmul_efficiency: "},
      {changed("matmul_efficiency", "matmul"), "matmul: "},
      {changed("matmul_efficiency", "link_efficiency"), "link_efficiency"},
      {changed("  \"matmul_efficiency\": 0.77,\n", ""), "matmul_efficiency: "},
      {changed("}", ""), "params.json: "},
      {std::string(kMostCalibrationBytes + 1, ' '), "params.json: is longer than"},
  };
  for (const auto& [text, said] : mistakes) {
    const auto calibration = read_calibration(text, "params.json");
    ASSERT_FALSE(calibration.ok()) << text;
    EXPECT_EQ(calibration.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(calibration.status().message(), StartsWith("params.json")) << text;
    EXPECT_THAT(calibration.status().message(), HasSubstr(said)) << text;
    EXPECT_THAT(calibration.status().message(), testing::Not(HasSubstr("\n")));
  }
}

}  // namespace
}  // namespace corro::plan
