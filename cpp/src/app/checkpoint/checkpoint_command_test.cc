#include "app/checkpoint/checkpoint_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/sample_checkpoint.h"

namespace corro::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Said {
  int status;
  std::string out;
  std::string err;
};

Said run(const std::vector<std::string>& words) {
  const auto request = parse_checkpoint_line(words);
  EXPECT_TRUE(request.ok()) << request.status().message();
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int status = checkpoint_command(request->command);
  (void)fflush(stdout);
  std::string out = testing::internal::GetCapturedStdout();
  return {status, std::move(out), testing::internal::GetCapturedStderr()};
}

std::string folder_with(const std::string& name, const std::vector<uint64_t>& steps) {
  std::string folder = checkpoint::fresh_folder(name);
  checkpoint::RealDisk disk;
  for (const uint64_t step : steps)
    EXPECT_TRUE(checkpoint::write_sample(disk, folder, step, 2).ok());
  return folder;
}

void damage(const std::string& path) { std::ofstream(path, std::ios::binary) << "x"; }

TEST(CheckpointCommand, ListsNewestFirstAndSaysWhatIsDamaged) {
  const std::string folder = folder_with("ls", {5, 12});
  damage(folder + "/step-5/rank-1.safetensors");
  const Said said = run({"checkpoint", "ls", folder});
  EXPECT_EQ(said.status, 0);
  EXPECT_LT(said.out.find(" 12 "), said.out.find(" 5 "));
  EXPECT_THAT(said.out, HasSubstr("rank-1.safetensors: has 1 bytes; "));
  const auto rows = nlohmann::json::parse(run({"checkpoint", "ls", folder, "--json"}).out);
  EXPECT_EQ(rows[0]["step"], 12);
  EXPECT_EQ(rows[0]["world"], 2);
  EXPECT_TRUE(rows[1].contains("damaged"));
}

TEST(CheckpointCommand, VerifiesAllOrOne) {
  const std::string folder = folder_with("verify", {5, 12});
  EXPECT_EQ(run({"checkpoint", "verify", folder}).status, 0);
  {
    std::fstream file(folder + "/step-5/rank-0.safetensors", std::ios::in | std::ios::out);
    file.seekp(8192);
    file.put('x').put('y').put('z');
  }
  const Said said = run({"checkpoint", "verify", folder});
  EXPECT_EQ(said.status, 1);
  EXPECT_THAT(said.out, AllOf(HasSubstr("step 12: valid, "), HasSubstr("step 5: "),
                              HasSubstr("damaged between bytes 0 and 804096")));
  EXPECT_EQ(run({"checkpoint", "verify", folder, "12"}).status, 0);
}

TEST(CheckpointCommand, ShowsTensorsAndValues) {
  const std::string folder = folder_with("show", {12});
  const Said said = run({"checkpoint", "show", folder});
  EXPECT_THAT(said.out, AllOf(HasSubstr("step 12, written by 2 ranks: 6 tensors, 1.5 MiB\n"),
                              HasSubstr("[400, 1000]\n"), HasSubstr(R"(values: {"at":1.5})"),
                              HasSubstr(R"(a "b"?/\ ä)")));
  const auto shown = nlohmann::json::parse(run({"checkpoint", "show", folder, "--json"}).out);
  EXPECT_EQ(shown["values"]["at"], 1.5);
  EXPECT_EQ(shown["tensors"][0]["files"].size(), 2U);
}

TEST(CheckpointCommand, NothingToLookAtIsOneLine) {
  const std::string folder = folder_with("empty", {});
  const Said none = run({"checkpoint", "ls", folder});
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("there are no checkpoints in this folder\n"));
  EXPECT_THAT(run({"checkpoint", "show", folder + "/no"}).err, HasSubstr("no such folder\n"));
  const std::string some = folder_with("some", {4});
  EXPECT_THAT(run({"checkpoint", "verify", some, "7"}).err,
              HasSubstr("there is no checkpoint of step 7; there are: 4\n"));
}

TEST(CheckpointCommand, MistakesAreOneLine) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"checkpoint"},
                                                {"checkpoint", "ls"},
                                                {"checkpoint", "show", "x", "seven"},
                                                {"checkpoint", "verify", "x", "--json"}}) {
    const auto request = parse_checkpoint_line(words);
    ASSERT_FALSE(request.ok());
    EXPECT_EQ(request.status().message().find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace corro::app
