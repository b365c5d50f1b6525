#include "kube/client/https_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "io/fd.h"
#include "kube/client/client.h"
#include "kube/client/loopback_server.h"
#include "kube/client/watch.h"

namespace corro::kube {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

class Https : public testing::Test {
 protected:
  Https() {
    // The loopback server writes to clients that are gone.
    ::signal(SIGPIPE, SIG_IGN);
  }
  [[nodiscard]] KubeAccess access_to(const LoopbackServer& server) const {
    KubeAccess access;
    const Status status =
        read_server_url("https://127.0.0.1:" + std::to_string(server.port()), access.cluster);
    EXPECT_TRUE(status.ok()) << status.message();
    access.cluster.ca_pem = authority_.certificate;
    return access;
  }
  static std::unique_ptr<Client> connect(const KubeAccess& access) {
    return std::move(Client::connect(access, {})).value();
  }

  PemPair authority_ = make_certificate("authority");
  PemPair identity_ = make_certificate("server", "IP:127.0.0.1", &authority_);
  std::stop_source stopping_;
  std::stop_token stop_ = stopping_.get_token();
};

TEST_F(Https, KeepsAConnectionAndShowsTheToken) {
  Guarded<std::vector<LoopbackRequest>> seen;
  LoopbackServer server(identity_, [&](const LoopbackRequest& request) -> LoopbackReply {
    seen.lock()->push_back(request);
    return {http_reply(200, R"({"a":1})")};
  });
  KubeAccess access = access_to(server);
  access.user.token = "secret";
  const auto client = connect(access);
  for (int i = 0; i < 3; ++i) {
    const auto got = client->create(kPods, {"d", "a"}, {{"x", 1}}, stop_);
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_EQ(text_of(*got), R"({"a":1})");
  }
  const auto requests = *seen.lock();
  ASSERT_EQ(requests.size(), 3U);
  EXPECT_EQ(requests[2].connection, 0);
  EXPECT_EQ(requests[0].server_name, "");  // An address has no SNI.
  EXPECT_THAT(requests[0].text,
              HasSubstr("POST /api/v1/namespaces/d/pods?fieldManager=corro HTTP/1.1\r\n"));
  EXPECT_THAT(requests[0].text, HasSubstr("Authorization: Bearer secret\r\n"));
  EXPECT_THAT(requests[0].text, HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_TRUE(requests[0].text.ends_with("\r\n\r\n{\"x\":1}"));
}

TEST_F(Https, UsesAnotherConnectionIfTheServerEndedTheIdleOne) {
  LoopbackServer server(identity_, [&](const LoopbackRequest& request) -> LoopbackReply {
    return {http_reply(200, fmt::format(R"({{"connection":{}}})", request.connection)), false,
            request.connection == 0};
  });
  const auto client = connect(access_to(server));
  ASSERT_TRUE(client->create(kPods, {"d", "a"}, {}, stop_).ok());
  // The end may still be on its way when the next call begins: a read is repeated then.
  const auto second = client->get(kPods, {"d", "a"}, stop_);
  ASSERT_TRUE(second.ok()) << second.status().message();
  EXPECT_EQ(text_of(*second), R"({"connection":1})");
}

TEST_F(Https, RefusesAServerOfAnotherAuthority) {
  LoopbackServer server(
      identity_, [](const LoopbackRequest&) -> LoopbackReply { return {http_reply(200, "{}")}; });
  KubeAccess access = access_to(server);
  access.cluster.ca_pem = make_certificate("authority").certificate;
  const auto got = connect(access)->get(kPods, {"d", "a"}, stop_);
  EXPECT_EQ(got.status().code(), Code::kUnauthenticated);
  EXPECT_THAT(got.status().message(), HasSubstr("the server's certificate is refused: "));
  access.cluster.ca_pem = "nonsense";
  EXPECT_EQ(Client::connect(access, {}).status().code(), Code::kInvalidArgument);
}

TEST_F(Https, RefusesAServerOfAnotherName) {
  Guarded<std::string> asked_name;
  const PemPair identity = make_certificate("server", "DNS:api.example", &authority_);
  LoopbackServer server(identity, [&](const LoopbackRequest& request) -> LoopbackReply {
    *asked_name.lock() = request.server_name;
    return {http_reply(200, "{}")};
  });
  KubeAccess access = access_to(server);
  const auto by_address = connect(access)->get(kPods, {"d", "a"}, stop_);
  EXPECT_EQ(by_address.status().code(), Code::kUnauthenticated);
  EXPECT_THAT(by_address.status().message(), HasSubstr("IP address mismatch"));
  access.cluster.server_name = "other.example";
  const auto by_name = connect(access)->get(kPods, {"d", "a"}, stop_);
  EXPECT_THAT(by_name.status().message(), HasSubstr("ostname mismatch"));
  access.cluster.server_name = "api.example";
  const auto right = connect(access)->get(kPods, {"d", "a"}, stop_);
  EXPECT_TRUE(right.ok()) << right.status().message();
  EXPECT_EQ(*asked_name.lock(), "api.example");
}

TEST_F(Https, ShowsItsOwnCertificate) {
  Guarded<std::string> shown;
  LoopbackServer server(
      identity_,
      [&](const LoopbackRequest& request) -> LoopbackReply {
        *shown.lock() = request.client_name;
        return {http_reply(200, "{}")};
      },
      authority_.certificate);
  KubeAccess access = access_to(server);
  const auto without = connect(access)->get(kPods, {"d", "a"}, stop_);
  EXPECT_EQ(without.status().code(), Code::kUnauthenticated) << without.status().message();
  const PemPair me = make_certificate("me", "", &authority_);
  access.user.certificate_pem = me.certificate;
  access.user.key_pem = me.key;
  const auto with = connect(access)->get(kPods, {"d", "a"}, stop_);
  EXPECT_TRUE(with.ok()) << with.status().message();
  EXPECT_EQ(*shown.lock(), "me");
}

TEST_F(Https, ReadsTheTokenAgainWhenItWasRotated) {
  std::string folder = testing::TempDir() + "corro_https_XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/token";
  std::ofstream(path) << "old\n";
  Guarded<std::string> good(std::string("old"));
  LoopbackServer server(identity_, [&](const LoopbackRequest& request) -> LoopbackReply {
    const std::string wanted = "Authorization: Bearer " + *good.lock() + "\r\n";
    const bool is_good = request.text.find(wanted) != std::string::npos;
    return {http_reply(is_good ? 200 : 401, "{}")};
  });
  KubeAccess access = access_to(server);
  access.user.token_file = path;
  const auto client = connect(access);
  EXPECT_TRUE(client->get(kPods, {"d", "a"}, stop_).ok());
  std::ofstream(path) << "new\n";
  *good.lock() = "new";
  const auto after = client->create(kPods, {"d", "a"}, {}, stop_);
  EXPECT_TRUE(after.ok()) << after.status().message();
  *good.lock() = "other";
  EXPECT_EQ(client->get(kPods, {"d", "a"}, stop_).status().code(), Code::kUnauthenticated);
  std::filesystem::remove_all(folder);
}

TEST_F(Https, EndsCallsToAServerThatHangs) {
  LoopbackServer server(identity_,
                        [](const LoopbackRequest&) -> LoopbackReply { return {"", true}; });
  const auto client = connect(access_to(server));
  const Time soon = monotonic_now() + std::chrono::milliseconds(50);
  const auto late = client->get(kPods, {"d", "a"}, {stop_, soon});
  EXPECT_EQ(late.status().code(), Code::kDeadlineExceeded) << late.status().message();
  // A server of its own: the late call may have ended before its request reached the first one.
  LoopbackServer other(identity_,
                       [](const LoopbackRequest&) -> LoopbackReply { return {"", true}; });
  const auto second = connect(access_to(other));
  Status stopped;
  std::thread calling([&] { stopped = second->get(kPods, {"d", "a"}, stop_).status(); });
  other.wait_for_requests(1);
  stopping_.request_stop();
  calling.join();
  EXPECT_EQ(stopped.code(), Code::kCancelled) << stopped.message();
}

TEST_F(Https, EndsAWatchThatHangsAtOnce) {
  const auto chunk = [](const std::string& text) {
    return fmt::format("{:x}\r\n{}\r\n", text.size(), text);
  };
  LoopbackServer server(identity_, [&](const LoopbackRequest& request) -> LoopbackReply {
    if (request.text.find("watch=true") == std::string::npos) {
      return {http_reply(200, R"({"metadata":{"resourceVersion":"5"},"items":[]})")};
    }
    const std::string event =
        R"({"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"6"}}})"
        "\n";
    return {"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(event.substr(0, 9)) +
                chunk(event.substr(9)),
            true};
  });
  const auto client = connect(access_to(server));
  std::vector<std::string> names;
  Guarded<bool> was_told;
  Status end;
  std::thread watching([&] {
    end = watch(
        *client, {kPods, "d", {}},
        [&](const WatchEvent& event) {
          names.push_back(text_at(event.object, {"metadata", "name"}));
          *was_told.lock() = event.kind == WatchEvent::Kind::kAdded;
          was_told.notify_all();
        },
        stop_);
  });
  {
    auto told = was_told.lock();
    while (!*told) told.wait_for(std::chrono::milliseconds(10));
  }
  stopping_.request_stop();
  watching.join();
  EXPECT_EQ(end.code(), Code::kCancelled) << end.message();
  EXPECT_THAT(names, ElementsAre("", "a"));
}

TEST_F(Https, RefusesWhatIsNoHttp) {
  LoopbackServer server(identity_, [](const LoopbackRequest&) -> LoopbackReply {
    return {"hello\r\n\r\n", false, true};
  });
  const auto got = connect(access_to(server))->create(kPods, {"d", "a"}, {}, stop_);
  EXPECT_EQ(got.status().code(), Code::kDataLoss) << got.status().message();
}

TEST_F(Https, SaysThatNobodyListens) {
  KubeAccess access;
  {
    LoopbackServer server(identity_, [](const LoopbackRequest&) -> LoopbackReply { return {}; });
    access = access_to(server);
  }
  const auto got = connect(access)->get(kPods, {"d", "a"},
                                        {stop_, monotonic_now() + std::chrono::milliseconds(20)});
  EXPECT_EQ(got.status().code(), Code::kUnavailable) << got.status().message();
  EXPECT_THAT(got.status().message(), HasSubstr("cannot connect"));
}

/// Answers requests without TLS, all on one connection, until the client ends it.
class PlainServer {
 public:
  PlainServer() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(listener_.get(), generic, bytes), 0);
    EXPECT_EQ(::listen(listener_.get(), 1), 0);
    ::getsockname(listener_.get(), generic, &bytes);
    port = ntohs(address.sin_port);
  }
  void answer(std::string with) {
    serving_ = std::thread([this, reply = std::move(with)] {
      const io::Fd accepted(::accept(listener_.get(), nullptr, nullptr));
      std::array<char, 4096> bytes{};
      while (true) {
        const ssize_t got = ::read(accepted.get(), bytes.data(), bytes.size());
        if (got <= 0) return;
        requests_.emplace_back(bytes.data(), static_cast<size_t>(got));
        EXPECT_EQ(::write(accepted.get(), reply.data(), reply.size()), std::ssize(reply));
      }
    });
  }
  /// The requests, once the client has ended its connection.
  std::vector<std::string> requests() {
    serving_.join();
    return requests_;
  }
  uint16_t port = 0;

 private:
  io::Fd listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::vector<std::string> requests_;
  std::thread serving_;
};

TEST_F(Https, SpeaksWithoutTlsToThisMachineAlone) {
  for (const std::string address : {"10.0.0.1", "localhost", "::", "0.0.0.0", ""}) {
    const Status refused = make_loopback_transport(address, 2379, {}).status();
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << address;
  }
  EXPECT_TRUE(make_loopback_transport("127.0.0.2", 2379, {}).ok());
  EXPECT_TRUE(make_loopback_transport("::1", 2379, {}).ok());
}

TEST_F(Https, ASecondCallWithoutTlsUsesTheSameConnection) {
  PlainServer server;
  server.answer(http_reply(200, "[1]"));
  auto transport = std::move(make_loopback_transport("127.0.0.1", server.port, {})).value();
  for (int i = 0; i < 2; ++i) {
    std::string text;
    const Exchanged end =
        transport->exchange({"POST", "/v3/kv/range", "{}", "application/json"}, {}, stop_,
                            [&](const Head& head, std::string_view piece) {
                              EXPECT_EQ(head.status, 200);
                              text += piece;
                              return Status();
                            });
    EXPECT_TRUE(end.status.ok()) << end.status.message();
    EXPECT_EQ(text, "[1]");
  }
  transport.reset();
  const std::vector<std::string> requests = server.requests();
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_THAT(requests[1], testing::StartsWith("POST /v3/kv/range HTTP/1.1\r\n"));
  EXPECT_THAT(requests[1], testing::Not(HasSubstr("Authorization")));
}

}  // namespace
}  // namespace corro::kube
