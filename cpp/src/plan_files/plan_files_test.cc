#include "plan_files/plan_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace corro::plan_files {
namespace {

using ::testing::StartsWith;

std::string example(const std::string& name) { return CORRO_EXAMPLES "/plan/" + name; }

class PlanFiles : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    return path;
  }

  const std::string folder_ = testing::TempDir() + "plan_files_" +
                              testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST(ModelExamples, AreWhatTheirNamesSay) {
  const std::pair<const char*, double> cases[] = {
      {"llama3_70b.yaml", 70.554e9}, {"gpt_small.yaml", 6.4e6}, {"mixtral_8x7b.json", 46.703e9}};
  for (const auto& [name, parameters] : cases) {
    SCOPED_TRACE(name);
    const auto model = load_model(example(name));
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_NEAR(static_cast<double>(plan::parameter_count(*model)) / parameters, 1, 0.01);
  }
}

TEST(ClusterExamples, AreWhatTheirNamesSay) {
  const std::pair<const char*, uint32_t> cases[] = {
      {"a100_1024.yaml", 1024},     {"a100_64.yaml", 64}, {"h100_64.yaml", 64},
      {"gb200_nvl72.yaml", 144},    {"cpu_2.yaml", 2},    {"t4_home.yaml", 4},
      {"mixed_a100_v100.yaml", 96},
  };
  for (const auto& [name, devices] : cases) {
    SCOPED_TRACE(name);
    const auto cluster = load_cluster(example(name));
    ASSERT_TRUE(cluster.ok()) << cluster.status().message();
    EXPECT_EQ(cluster->device_count(), devices);
    EXPECT_EQ(cluster->name + ".yaml", name);
  }
  const plan::Cluster selene = load_cluster(example("a100_1024.yaml")).value();
  EXPECT_EQ(selene.host_count(), 128);
  EXPECT_EQ(selene.link_between_hosts(0, 127), (plan::Link{200e9, 5e-6}));
}

TEST_F(PlanFiles, AClusterTakesItsIncludedFilesFromItsOwnFolder) {
  write("links.yaml", "corro_cluster: 1\nlinks: {rail: {bandwidth: 1 GB/s}}\n");
  const std::string path = write("cluster.yaml",
                                 "corro_cluster: 1\nname: c\ninclude: [links.yaml]\n"
                                 "hosts:\n  - {count: 2, device: a100-80gb, network: rail}\n");
  const auto cluster = load_cluster(path);
  ASSERT_TRUE(cluster.ok()) << cluster.status().message();
  EXPECT_EQ(cluster->link_between_hosts(0, 1).bandwidth, 1e9);
  std::filesystem::remove(folder_ + "/links.yaml");
  EXPECT_EQ(load_cluster(path).status().message(),
            path + ":3: include[0]: " + folder_ + "/links.yaml: No such file or directory");
}

TEST_F(PlanFiles, AFileThatCannotBeReadSaysWhich) {
  EXPECT_EQ(load_cluster("/nonexistent/c.yaml").status().code(), Code::kNotFound);
  for (const Status& status :
       {load_model("/nonexistent/f").status(), load_cluster("/nonexistent/f").status(),
        load_calibration("/nonexistent/f").status(), load_profile("/nonexistent/f").status(),
        load_decision("/nonexistent/f").status()}) {
    EXPECT_EQ(status.message(), "/nonexistent/f: No such file or directory");
  }
  EXPECT_THAT(load_model("/").status().message(), StartsWith("/: "));
}

TEST_F(PlanFiles, AFileThatIsTooLongIsRefused) {
  const std::string path = write("params.json", std::string(plan::kMostCalibrationBytes + 1, ' '));
  const Status status = load_calibration(path).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(status.message(), path + ": is longer than the 65536 bytes that are read at most");
  EXPECT_TRUE(read_text(path, plan::kMostCalibrationBytes + 1).ok());
}

}  // namespace
}  // namespace corro::plan_files
