#include "kube/operator/http_pages.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "io/fd.h"

namespace corro::kube {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::map<std::string, HttpPages::Route> routes() {
  return {{"/healthz", {[] { return HttpPage{}; }}},
          {"/metrics", {[] { return HttpPage{200, "jobs 1\n"}; }, true}}};
}

io::Fd dial(const HttpPages& pages) {
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
std::string ask(const HttpPages& pages, const std::string& request) {
  const io::Fd socket = dial(pages);
  EXPECT_EQ(send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(request.size()));
  std::string answer;
  char piece[4096];
  for (ssize_t got = 0; (got = recv(socket.get(), piece, sizeof piece, 0)) > 0;)
    answer.append(piece, static_cast<size_t>(got));
  return answer;
}

std::string get(const HttpPages& pages, const std::string& target, const std::string& more = "") {
  return ask(pages, "GET " + target + " HTTP/1.1\r\nHost: x\r\n" + more + "\r\n");
}

TEST(HttpPages, ServesWhatThereIsAndNamesItOtherwise) {
  const auto pages = HttpPages::listen({"127.0.0.1:0"}, routes());
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

TEST(HttpPages, BeyondLoopbackProtectedPagesNeedTheToken) {
  const auto closed = HttpPages::listen({"0.0.0.0:0"}, routes());
  ASSERT_TRUE(closed.ok()) << closed.status().message();
  EXPECT_THAT(get(**closed, "/metrics"), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(get(**closed, "/healthz"), StartsWith("HTTP/1.1 200"));
  const auto open = HttpPages::listen({"0.0.0.0:0", "secret"}, routes());
  ASSERT_TRUE(open.ok()) << open.status().message();
  EXPECT_THAT(get(**open, "/metrics"), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(get(**open, "/metrics", "Authorization: Bearer secreT\r\n"),
              StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(get(**open, "/metrics", "Authorization: Bearer secret\r\n"),
              StartsWith("HTTP/1.1 200"));
}

TEST(HttpPages, NonsenseAndSilenceHoldUpNobody) {
  const auto pages = HttpPages::listen({"127.0.0.1:0"}, routes());
  ASSERT_TRUE(pages.ok()) << pages.status().message();
  std::vector<io::Fd> silent;
  for (int i = 0; i < 8; ++i) silent.push_back(dial(**pages));
  EXPECT_EQ(ask(**pages, "\x16\x03\x01\r\n\r\n"), "");
  EXPECT_EQ(get(**pages, "/healthz", "X: " + std::string(20000, 'x') + "\r\n").substr(0, 12), "");
  EXPECT_THAT(get(**pages, "/healthz"), StartsWith("HTTP/1.1 200"));
}

TEST(HttpPages, AddressesThatCannotBeAreRefused) {
  for (const char* address :
       {"", "8080", "localhost:8080", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:80x"}) {
    const auto pages = HttpPages::listen({address}, routes());
    ASSERT_FALSE(pages.ok()) << address;
    EXPECT_EQ(pages.status().code(), Code::kInvalidArgument) << address;
  }
  const auto first = HttpPages::listen({"127.0.0.1:0"}, routes());
  ASSERT_TRUE(first.ok());
  const auto second = HttpPages::listen({(*first)->address()}, routes());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace corro::kube
