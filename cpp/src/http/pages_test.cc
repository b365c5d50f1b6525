#include "http/pages.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <set>

#include "io/fd.h"

namespace corro::http {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::map<std::string, Pages::Route> routes() {
  return {{"/healthz", {[](const Query&) { return Page{}; }}},
          {"/metrics", {[](const Query&) { return Page{200, "jobs 1\n"}; }, true}}};
}

io::Fd dial(const Pages& pages) {
  const std::string address = pages.address();
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  io::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  return socket;
}

/// The whole answer, until the server closes.
std::string ask(const Pages& pages, const std::string& request) {
  const io::Fd socket = dial(pages);
  EXPECT_EQ(send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string answer;
  char piece[4096];
  for (ssize_t got = 0; (got = recv(socket.get(), piece, sizeof piece, 0)) > 0;)
    answer.append(piece, static_cast<size_t>(got));
  return answer;
}

std::string get(const Pages& pages, const std::string& target, const std::string& more = "") {
  return ask(pages, "GET " + target + " HTTP/1.1\r\nHost: x\r\n" + more + "\r\n");
}

TEST(Pages, ServesWhatThereIsAndNamesItOtherwise) {
  const auto pages = Pages::listen({"127.0.0.1:0"}, routes());
  ASSERT_TRUE(pages.ok()) << pages.status().message();
  EXPECT_THAT(get(**pages, "/healthz?verbose"),
              testing::AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("\r\n\r\nok\n")));
  EXPECT_THAT(get(**pages, "/metrics"), HasSubstr("\r\n\r\njobs 1\n"));
  EXPECT_THAT(get(**pages, "/"),
              testing::AllOf(StartsWith("HTTP/1.1 404"), HasSubstr("/healthz\n/metrics\n")));
  EXPECT_THAT(ask(**pages, "POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"),
              StartsWith("HTTP/1.1 405"));
  const std::string head = ask(**pages, "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("Content-Length: 7"));
  EXPECT_THAT(head, testing::EndsWith("\r\n\r\n"));
}

TEST(Pages, APageIsToldWhatIsAskedOfIt) {
  const auto echo = [](const Query& query) {
    return Page{200, std::string(value_of(query, "say")) + "\n"};
  };
  const auto pages = Pages::listen({"127.0.0.1:0"}, {{"/", {echo}}});
  ASSERT_TRUE(pages.ok()) << pages.status().message();
  EXPECT_THAT(get(**pages, "/?x=1&say=two+words"), HasSubstr("\r\n\r\ntwo words\n"));
  EXPECT_THAT(get(**pages, "/"), HasSubstr("\r\n\r\n\n"));
}

TEST(Pages, BeyondLoopbackProtectedPagesNeedTheToken) {
  const auto closed = Pages::listen({"0.0.0.0:0"}, routes());
  ASSERT_TRUE(closed.ok()) << closed.status().message();
  EXPECT_THAT(get(**closed, "/metrics"), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(get(**closed, "/healthz"), StartsWith("HTTP/1.1 200"));
  const auto open = Pages::listen({"0.0.0.0:0", "secret"}, routes());
  ASSERT_TRUE(open.ok()) << open.status().message();
  EXPECT_THAT(get(**open, "/metrics"), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(get(**open, "/metrics", "Authorization: Bearer secreT\r\n"),
              StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(get(**open, "/metrics", "Authorization: Bearer secret\r\n"),
              StartsWith("HTTP/1.1 200"));
}

TEST(Pages, NonsenseAndSilenceHoldUpNobody) {
  const auto pages = Pages::listen({"127.0.0.1:0"}, routes());
  ASSERT_TRUE(pages.ok()) << pages.status().message();
  std::vector<io::Fd> silent;
  for (int i = 0; i < 8; ++i) silent.push_back(dial(**pages));
  EXPECT_EQ(ask(**pages, "\x16\x03\x01\r\n\r\n"), "");
  EXPECT_EQ(get(**pages, "/healthz", "X: " + std::string(20000, 'x') + "\r\n").substr(0, 12), "");
  EXPECT_THAT(get(**pages, "/healthz"), StartsWith("HTTP/1.1 200"));
}

TEST(Pages, AddressesThatCannotBeAreRefused) {
  for (const char* address :
       {"", "8080", "localhost:8080", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:80x"}) {
    const auto pages = Pages::listen({address}, routes());
    ASSERT_FALSE(pages.ok()) << address;
    EXPECT_EQ(pages.status().code(), Code::kInvalidArgument) << address;
  }
  const auto first = Pages::listen({"127.0.0.1:0"}, routes());
  ASSERT_TRUE(first.ok());
  const auto second = Pages::listen({(*first)->address()}, routes());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::kUnavailable);
}

constexpr const char* kBrowser = "Host: 127.0.0.1:1\r\n";

std::unique_ptr<Pages> for_browsers(const std::string& address = "127.0.0.1:0") {
  auto pages =
      Pages::listen({.address = address, .token = "secret", .for_browsers = true},
                    {{"/", {[](const Query&) { return Page{200, "<p>", "text/html"}; }, true}}});
  EXPECT_TRUE(pages.ok()) << pages.status().message();
  return std::move(*pages);
}

std::string visit(const Pages& pages, const std::string& target, const std::string& more = "",
                  const std::string& host = kBrowser) {
  return ask(pages, "GET " + target + " HTTP/1.1\r\n" + host + more + "\r\n");
}

TEST(Pages, ABrowserTakesTheTokenForACookieAndTheAddressHasItNoLonger) {
  const auto pages = for_browsers();
  const std::string address = pages->address();
  const std::string name = "corro-" + address.substr(address.rfind(':') + 1);
  EXPECT_THAT(visit(*pages, "/"), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(visit(*pages, "/?token=secreT"), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(visit(*pages, "/", "Cookie: " + name + "=x\r\n"), StartsWith("HTTP/1.1 403"));
  const std::string entered = visit(*pages, "/?token=secret");
  EXPECT_THAT(entered, StartsWith("HTTP/1.1 303"));
  EXPECT_THAT(entered, HasSubstr("\r\nLocation: /\r\n"));
  EXPECT_THAT(entered, HasSubstr("\r\nSet-Cookie: " + name +
                                 "=secret; Path=/; HttpOnly; SameSite=Strict\r\n"));
  EXPECT_THAT(entered.substr(entered.find("\r\n\r\n")), testing::Not(HasSubstr("secret")));
  const std::string seen = visit(*pages, "/", "Cookie: a=b; " + name + "=secret\r\n");
  EXPECT_THAT(seen, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(seen, HasSubstr("\r\nContent-Type: text/html\r\n"));
  EXPECT_THAT(visit(*pages, "/", "Authorization: Bearer secret\r\n"), StartsWith("HTTP/1.1 200"));
}

TEST(Pages, NothingIsOfAnotherSite) {
  const auto pages = for_browsers();
  const std::string seen = visit(*pages, "/", "Authorization: Bearer secret\r\n");
  EXPECT_THAT(seen, HasSubstr("\r\nContent-Security-Policy: default-src 'self';"));
  EXPECT_THAT(seen, HasSubstr("\r\nX-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(seen, HasSubstr("\r\nReferrer-Policy: no-referrer\r\n"));
  EXPECT_THAT(seen, HasSubstr("\r\nCache-Control: no-store\r\n"));
  EXPECT_THAT(visit(*pages, "/?token=secret", "", "Host: evil.example\r\n"),
              StartsWith("HTTP/1.1 421"));
  EXPECT_THAT(visit(*pages, "/?token=secret", "", ""), StartsWith("HTTP/1.1 421"));
  EXPECT_THAT(visit(*pages, "//evil.example/?token=secret"), StartsWith("HTTP/1.1 404"));
}

TEST(Pages, APostIsTakenWhereOneIsWantedOfWhoeverMayAndOfNoOtherSite) {
  int orders = 0;
  const auto pages = Pages::listen(
      {.address = "127.0.0.1:0", .token = "secret", .for_browsers = true},
      {{"/", {[](const Query&) { return Page{}; }, true}},
       {"/ask",
        {[](const Query&) { return Page{}; }, true,
         [&orders](const Query& query) {
           return Page{202, fmt::format("{} {}\n", ++orders, value_of(query, "steps"))};
         }}}});
  ASSERT_TRUE(pages.ok()) << pages.status().message();
  const auto post = [&](const std::string& target, const std::string& more) {
    return ask(**pages, "POST " + target + " HTTP/1.1\r\n" + kBrowser + more + "\r\n");
  };
  const std::string bearer = "Authorization: Bearer secret\r\n";
  EXPECT_THAT(post("/ask", ""), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(post("/ask?token=secret", ""), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(post("/ask", bearer + "Origin: http://evil.example\r\n"),
              testing::AllOf(StartsWith("HTTP/1.1 403"), HasSubstr("another site")));
  EXPECT_THAT(post("/", bearer), testing::AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("GET only")));
  EXPECT_EQ(orders, 0);
  EXPECT_THAT(post("/ask?steps=3", bearer + "Origin: http://127.0.0.1:1\r\n"),
              testing::AllOf(StartsWith("HTTP/1.1 202"), HasSubstr("1 3\n")));
  EXPECT_THAT(post("/ask", bearer), StartsWith("HTTP/1.1 202"));
}

TEST(Pages, BeyondLoopbackAnyNameMayBeTheServers) {
  const auto pages = for_browsers("0.0.0.0:0");
  EXPECT_THAT(visit(*pages, "/?token=secret", "", "Host: node7:80\r\n"),
              StartsWith("HTTP/1.1 303"));
  EXPECT_THAT(visit(*pages, "/", "", "Host: node7:80\r\n"), StartsWith("HTTP/1.1 403"));
}

/// Of the descriptors that a program would inherit.
std::set<int> inherited() {
  std::set<int> found;
  for (int fd = 0; fd < 256; ++fd) {
    const int flags = fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) found.insert(fd);
  }
  return found;
}

TEST(Pages, ProgramsThatAreExecutedDoNotHoldThePort) {
  const std::set<int> before = inherited();
  const auto pages = for_browsers();
  const io::Fd visitor = dial(*pages);
  ASSERT_THAT(visit(*pages, "/"), StartsWith("HTTP/1.1 403"));  // The first one is accepted, too.
  EXPECT_EQ(inherited(), before);
}

}  // namespace
}  // namespace corro::http
