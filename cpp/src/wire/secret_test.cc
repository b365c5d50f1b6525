#include "wire/secret.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace corro::wire {
namespace {

class SecretFile : public ::testing::Test {
 protected:
  SecretFile()
      : path_(std::filesystem::temp_directory_path() / ("secret-" + std::to_string(getpid()))) {}
  ~SecretFile() override { std::filesystem::remove(path_); }
  Result<Secret> read(const std::string& text, mode_t mode = 0600) {
    std::ofstream(path_) << text;
    chmod(path_.c_str(), mode);
    return read_secret_file(path_);
  }
  std::filesystem::path path_;
};

TEST_F(SecretFile, IsReadWithOrWithoutANewline) {
  const std::string digits = std::string(62, '0') + "fF";
  EXPECT_EQ(read(digits).value().back(), std::byte{0xFF});
  EXPECT_EQ(read(digits + "\n").value().back(), std::byte{0xFF});
}

TEST_F(SecretFile, OfOthersIsRefused) {
  EXPECT_EQ(read(std::string(64, 'a'), 0640).status().code(), Code::kPermissionDenied);
}

TEST_F(SecretFile, ThatIsShortLongOrNoHexIsRefusedWithoutShowingIt) {
  for (const std::string& text :
       {std::string(63, 'a'), std::string(66, 'a'), std::string(64, 'x'), std::string()}) {
    const auto result = read(text);
    EXPECT_EQ(result.status().code(), Code::kInvalidArgument) << text.size();
    EXPECT_EQ(result.status().message().find("aaaa"), std::string::npos);
  }
}

TEST_F(SecretFile, ThatIsMissingIsNotFound) {
  EXPECT_EQ(read_secret_file("/nonexistent/secret").status().code(), Code::kNotFound);
}

class UserSecret : public ::testing::Test {
 protected:
  UserSecret() {
    std::string name = (std::filesystem::temp_directory_path() / "corro-home-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    home_ = name;
  }
  ~UserSecret() override { std::filesystem::remove_all(home_); }
  std::filesystem::path home_;
};

TEST_F(UserSecret, IsMadeOnceForThisUserAlone) {
  const std::string path = home_ / ".config/corro/secret";
  const Secret first = user_secret(path).value();
  EXPECT_EQ(user_secret(path).value(), first);
  struct stat info{};
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  ASSERT_EQ(stat((home_ / ".config").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0700U);
  const auto files = std::filesystem::directory_iterator(home_ / ".config/corro");
  EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "nothing temporary stays";
}

TEST_F(UserSecret, OfProcessesThatMakeItAtOnceIsTheSame) {
  const std::string path = home_ / "secret";
  std::vector<Secret> found(8);
  {
    std::vector<std::jthread> threads;
    for (Secret& one : found) threads.emplace_back([&] { one = user_secret(path).value(); });
  }
  EXPECT_EQ(found, std::vector<Secret>(found.size(), found[0]));
}

TEST_F(UserSecret, ThatOthersMayReadOrThatCannotBeMadeIsRefused) {
  const std::string path = home_ / "secret";
  (void)user_secret(path).value();
  chmod(path.c_str(), 0644);
  EXPECT_EQ(user_secret(path).status().code(), Code::kPermissionDenied);
  const auto none = user_secret("/proc/corro/secret");
  EXPECT_EQ(none.status().code(), Code::kFailedPrecondition);
  EXPECT_NE(none.status().message().find("CORRO_SECRET_FILE"), std::string::npos);
}

}  // namespace
}  // namespace corro::wire
