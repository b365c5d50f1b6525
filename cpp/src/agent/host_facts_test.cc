#include "agent/host_facts.h"

#include <gtest/gtest.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace corro::agent {
namespace {

namespace fs = std::filesystem;

/// A folder of its own that goes with the test.
class HostFactsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = fs::temp_directory_path() / "corro-facts-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }
  void touch(const fs::path& path) const {
    fs::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path).put('\n');
  }
  fs::path folder_;
};

TEST_F(HostFactsTest, AVirtualEnvironmentSaysWhichPythonAndTorchItHas) {
  touch("base/bin/python3.12");
  fs::create_directories(folder_ / "venv/lib/python3.12/site-packages/torch-2.8.0+cpu.dist-info");
  fs::create_directories(folder_ / "venv/lib/python3.12/site-packages/torchvision-9.dist-info");
  fs::create_directories(folder_ / "venv/bin");
  fs::create_symlink(folder_ / "base/bin/python3.12", folder_ / "venv/bin/python");
  const PythonFacts facts = read_python_facts(folder_ / "venv/bin/python");
  EXPECT_EQ(facts.python, "3.12");
  EXPECT_EQ(facts.torch, "2.8.0+cpu");
}

TEST_F(HostFactsTest, APythonWithoutAVersionInItsNameHasItInItsLibrary) {
  touch("bin/python3");
  fs::create_directories(folder_ / "lib/python3.11/site-packages");
  const PythonFacts facts = read_python_facts(folder_ / "bin/python3");
  EXPECT_EQ(facts.python, "3.11");
  EXPECT_EQ(facts.torch, "");
}

TEST_F(HostFactsTest, WhatIsNotThereIsNotKnown) {
  const PythonFacts facts = read_python_facts(folder_ / "bin/python");
  EXPECT_EQ(facts.python + facts.torch, "");
  EXPECT_EQ(read_python_facts("").python, "");
}

TEST(HostFacts, ThisHostHasAKernelAndSharedMemory) {
  const HostFacts facts = read_host_facts("");
  utsname system{};
  ASSERT_EQ(uname(&system), 0);
  EXPECT_EQ(facts.kernel, system.release);
  EXPECT_LE(facts.shared_free, facts.shared_bytes);
}

}  // namespace
}  // namespace corro::agent
