#include "wire/directory_bootstrap.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "wire/bootstrap_conformance.h"

namespace corro::wire {
namespace {

using ::testing::HasSubstr;

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "corro-meet-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct DirectoryMeeting {
  std::unique_ptr<Bootstrap> join(int32_t /*rank*/) {
    return DirectoryBootstrap::open(directory.path() / "meet").value();
  }
  TemporaryDirectory directory;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Directory, BootstrapConformance, DirectoryMeeting);

Code code_of_open(const std::filesystem::path& path) {
  return DirectoryBootstrap::open(path).status().code();
}

TEST(DirectoryBootstrap, IsMadeForTheUserAlone) {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "new";
  ASSERT_TRUE(DirectoryBootstrap::open(path).ok());
  struct stat info{};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0700U);
}

TEST(DirectoryBootstrap, RefusesWhatOthersCouldChange) {
  const TemporaryDirectory directory;
  const auto open_to_all = directory.path() / "open";
  std::filesystem::create_directory(open_to_all);
  std::filesystem::permissions(open_to_all, std::filesystem::perms::all);
  const auto refused = DirectoryBootstrap::open(open_to_all);
  EXPECT_EQ(refused.status().code(), Code::kPermissionDenied);
  EXPECT_THAT(refused.status().message(), HasSubstr("chmod 700"));

  const auto link = directory.path() / "link";
  std::filesystem::create_directory_symlink(directory.path(), link);
  EXPECT_EQ(code_of_open(link), Code::kPermissionDenied);
  const auto file = directory.path() / "file";
  std::ofstream(file) << "x";
  EXPECT_EQ(code_of_open(file), Code::kPermissionDenied);
  EXPECT_EQ(code_of_open(directory.path() / "missing" / "below"), Code::kNotFound);
}

TEST(DirectoryBootstrap, RefusesADirectoryOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to make a directory of another user";
  const TemporaryDirectory directory;
  ASSERT_EQ(chown(directory.path().c_str(), 12345, 12345), 0);
  const auto refused = DirectoryBootstrap::open(directory.path());
  EXPECT_EQ(refused.status().code(), Code::kPermissionDenied);
  EXPECT_THAT(refused.status().message(), HasSubstr("belongs to user 12345"));
}

TEST(DirectoryBootstrap, RefusesPlantedFiles) {
  const TemporaryDirectory directory;
  const auto bootstrap = DirectoryBootstrap::open(directory.path()).value();
  const Time deadline = monotonic_now() + std::chrono::seconds(60);
  std::filesystem::create_symlink("/etc/hostname", directory.path() / bootstrap_file_name("link"));
  EXPECT_FALSE(bootstrap->get("link", deadline).ok());
  std::ofstream(directory.path() / bootstrap_file_name("long"))
      << std::string(kMaxBootstrapValue + 1, 'x');
  EXPECT_EQ(bootstrap->get("long", deadline).status().code(), Code::kInvalidArgument);
  ASSERT_EQ(mkfifo((directory.path() / bootstrap_file_name("fifo")).c_str(), 0600), 0);
  EXPECT_EQ(bootstrap->get("fifo", deadline).status().code(), Code::kPermissionDenied);
}

TEST(DirectoryBootstrap, AnEarlierJobsKeyIsExplainedAndNothingIsLeft) {
  const TemporaryDirectory directory;
  const auto bootstrap = DirectoryBootstrap::open(directory.path()).value();
  ASSERT_TRUE(bootstrap->put("rank/0", Bytes(1)).ok());
  const Status taken = DirectoryBootstrap::open(directory.path()).value()->put("rank/0", Bytes(2));
  EXPECT_EQ(taken.code(), Code::kAlreadyExists);
  EXPECT_THAT(taken.message(), HasSubstr("CORRO_JOB_ID"));
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory.path()))
    ++files;
  EXPECT_EQ(files, 1U) << "no temporary file stays";
}

}  // namespace
}  // namespace corro::wire
