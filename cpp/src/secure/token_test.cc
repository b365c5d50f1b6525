#include "secure/token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "wire/digest.h"
#include "wire/secret.h"

namespace corro::secure {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TokenTest : public ::testing::Test {
 protected:
  TokenTest() { EXPECT_NE(mkdtemp(folder_.data()), nullptr); }

  void write(const std::string& name, const std::string& text, mode_t mode = 0600) const {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << text;
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
  }

  std::string folder_ = ::testing::TempDir() + "token-XXXXXX";
};

TEST_F(TokenTest, AKeyIsRead) {
  const Key key = wire::random_secret(), second = wire::random_secret();
  write("key", wire::to_hex(key) + "\n");
  write("key-1", wire::to_hex(second));
  EXPECT_EQ(read_token(folder_).value(), key);
  EXPECT_EQ(read_token(folder_, 1).value(), second);
  EXPECT_EQ(read_token(folder_, 2).status().code(), Code::kNotFound);
}

TEST_F(TokenTest, AFileThatOthersMayReadIsNotTaken) {
  write("key", wire::to_hex(wire::random_secret()), 0644);
  EXPECT_EQ(read_token(folder_).status().code(), Code::kPermissionDenied);
}

TEST_F(TokenTest, AKeyThatIsNoneIsNotRepeated) {
  write("key", "sesame");
  const Status status = read_token(folder_).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), Not(HasSubstr("sesame")));
}

TEST(CheckTokenTest, AMountedSecretIsAccepted) {
  const TokenFile mounted{.is_regular = true,
                          .is_of_root = true,
                          .others_may_write = false,
                          .is_in_memory = true,
                          .is_read_only = true};
  EXPECT_TRUE(check_token(mounted).ok());
  TokenFile file = mounted;
  file.is_regular = false;
  EXPECT_EQ(check_token(file).code(), Code::kPermissionDenied);
  file = mounted, file.is_of_root = false;
  EXPECT_EQ(check_token(file).code(), Code::kPermissionDenied);
  file = mounted, file.others_may_write = true;
  EXPECT_EQ(check_token(file).code(), Code::kPermissionDenied);
  file = mounted, file.is_in_memory = false;
  EXPECT_THAT(check_token(file).message(), HasSubstr("memory"));
  file = mounted, file.is_read_only = false;
  EXPECT_THAT(check_token(file).message(), HasSubstr("read-only"));
}

}  // namespace
}  // namespace corro::secure
