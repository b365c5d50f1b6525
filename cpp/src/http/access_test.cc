#include "http/access.h"

#include <gtest/gtest.h>

namespace corro::http {
namespace {

const AccessRules kBrowsers{
    .token = "secret", .is_loopback = true, .for_browsers = true, .cookie = "corro-80"};

TEST(Access, IsByATokenThatIsRightToTheLastCharacter) {
  for (const char* wrong : {"", "s", "secre", "secrets", "SECRET"}) {
    const std::string text = wrong;
    const std::string query = "token=" + text, bearer = "Bearer " + text, jar = "corro-80=" + text;
    EXPECT_EQ(decide_access(kBrowsers, {.query = query}), Access::kForbidden) << wrong;
    EXPECT_EQ(decide_access(kBrowsers, {.authorization = bearer}), Access::kForbidden) << wrong;
    EXPECT_EQ(decide_access(kBrowsers, {.cookies = jar}), Access::kForbidden) << wrong;
  }
  EXPECT_EQ(decide_access(kBrowsers, {.query = "a=1&token=secret"}), Access::kEntered);
  EXPECT_EQ(decide_access(kBrowsers, {.authorization = "Bearer secret"}), Access::kGranted);
  EXPECT_EQ(decide_access(kBrowsers, {.authorization = "Basic secret"}), Access::kForbidden);
}

TEST(Access, ACookieOfAnotherServerIsNone) {
  const auto with = [](std::string_view jar) { return decide_access(kBrowsers, {.cookies = jar}); };
  EXPECT_EQ(with("corro-80=secret"), Access::kGranted);
  EXPECT_EQ(with("corro-8=x; corro-80=secret;"), Access::kGranted);
  EXPECT_EQ(with("corro-8=secret; xcorro-80=secret"), Access::kForbidden);
  EXPECT_EQ(with("corro-80; =secret;;  ; corro-80"), Access::kForbidden);
}

TEST(Access, WithoutATokenLoopbackIsOpenAndNothingElse) {
  EXPECT_EQ(decide_access({.is_loopback = true}, {}), Access::kGranted);
  EXPECT_EQ(decide_access({}, {.authorization = "Bearer "}), Access::kClosed);
}

TEST(Access, ProgramsShowNoCookies) {
  const AccessRules programs{.token = "secret", .is_loopback = true, .cookie = "corro-80"};
  EXPECT_EQ(decide_access(programs, {.query = "token=secret"}), Access::kUnknown);
  EXPECT_EQ(decide_access(programs, {.cookies = "corro-80=secret"}), Access::kUnknown);
  EXPECT_EQ(decide_access(programs, {.authorization = "Bearer secret"}), Access::kGranted);
}

TEST(Access, OnLoopbackOnlyNamesThatNobodyElseCanPointHere) {
  for (const char* own : {"localhost", "LocalHost:8080", "127.0.0.1", "127.0.0.1:1", "[::1]",
                          "[::1]:8080", "10.0.0.1:80"})
    EXPECT_TRUE(is_own_name(kBrowsers, own)) << own;
  for (const char* foreign : {"", "evil.example", "evil.example:8080", "127.0.0.1.evil.example:80",
                              "localhost.evil.example", ":8080", "1"})
    EXPECT_FALSE(is_own_name(kBrowsers, foreign)) << foreign;
  AccessRules anywhere = kBrowsers;
  anywhere.is_loopback = false;
  EXPECT_TRUE(is_own_name(anywhere, "node7:8080"));
  EXPECT_TRUE(is_own_name({.is_loopback = true}, "x")) << "probes say what they like";
}

TEST(Access, APostIsOfAPageOfThisServerOrOfAProgram) {
  const auto post = [](std::string_view host, std::string_view origin) {
    return decide_access(
        kBrowsers, {.host = host, .cookies = "corro-80=secret", .origin = origin, .is_post = true});
  };
  EXPECT_EQ(post("127.0.0.1:80", ""), Access::kGranted);
  EXPECT_EQ(post("127.0.0.1:80", "http://127.0.0.1:80"), Access::kGranted);
  EXPECT_EQ(post("Node7:80", "https://node7:80"), Access::kGranted);
  for (const char* foreign :
       {"null", "http://evil.example", "http://127.0.0.1:81", "http://127.0.0.1", "127.0.0.1:80",
        "http://", "http://127.0.0.1:80.evil.example", "http://evil.example/://127.0.0.1:80"})
    EXPECT_EQ(post("127.0.0.1:80", foreign), Access::kForeign) << foreign;
  EXPECT_EQ(post("", "http://"), Access::kForeign);
  EXPECT_EQ(decide_access(kBrowsers, {.query = "token=secret", .is_post = true}),
            Access::kForbidden);
}

}  // namespace
}  // namespace corro::http
