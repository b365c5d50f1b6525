#include "wire/secret.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

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

}  // namespace
}  // namespace corro::wire
