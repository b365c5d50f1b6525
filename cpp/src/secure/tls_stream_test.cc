#include "secure/tls_stream.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <array>
#include <csignal>
#include <string>

#include "wire/secret.h"

namespace corro::secure {
namespace {

using ::testing::HasSubstr;

constexpr const char* kUid = "7c1d-uid";

struct Pair {
  io::Fd ours, theirs;
};

Pair make_pair() {
  std::array<int, 2> ends{};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {.ours = io::Fd(ends[0]), .theirs = io::Fd(ends[1])};
}

/// What a side has got, and how it ended.
struct Got {
  std::string text;
  Status status;
};

void take(TlsStream& stream, Got& got) {
  std::array<std::byte, 4096> buffer{};
  const auto count = stream.read(buffer);
  if (!count.ok()) return (void)(got.status = count.status());
  got.text.append(reinterpret_cast<const char*>(buffer.data()), *count);
}

BytesView bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

class TlsStreamTest : public ::testing::Test {
 protected:
  TlsStreamTest() { std::signal(SIGPIPE, SIG_IGN); }

  /// As the head finds keys.
  [[nodiscard]] Tls head() const {
    return Tls::server([this](const PodIdentity& who) -> Result<Key> {
             if (who.job_uid != kUid) return Status(Code::kPermissionDenied, "of another job");
             return derive_member_key(part_, kUid, who.member);
           })
        .value();
  }
  [[nodiscard]] Tls member(const std::string& name, const std::string& key_of,
                           const std::string& uid = kUid) const {
    return Tls::client({.job_uid = uid, .member = name, .generation = 3},
                       derive_member_key(part_, uid, key_of))
        .value();
  }
  /// Lets both speak until nothing moves any more.
  static std::pair<Got, Got> talk(TlsStream& client, TlsStream& server) {
    Got from_server, from_client;
    size_t said = 0;
    for (int turn = 0; turn < 20; ++turn) {
      if (said == 0 && from_server.status.ok()) {
        const auto count = client.write(bytes_of("hello"));
        if (count.ok()) said = *count;
        if (!count.ok()) from_server.status = count.status();
      }
      if (from_client.status.ok()) take(server, from_client);
      if (from_server.status.ok()) take(client, from_server);
    }
    return {from_server, from_client};
  }

  Key part_ = wire::random_secret();
};

TEST_F(TlsStreamTest, BothSidesAreProvedAndBytesArrive) {
  Pair sockets = make_pair();
  const auto client = member("worker-1", "worker-1").open(std::move(sockets.ours)).value();
  const auto server = head().open(std::move(sockets.theirs)).value();
  EXPECT_FALSE(server->peer().has_value());
  const auto [to_client, to_server] = talk(*client, *server);
  EXPECT_EQ(to_server.text, "hello");
  EXPECT_TRUE(client->is_proved());
  ASSERT_TRUE(server->peer().has_value());
  EXPECT_EQ(*server->peer(), (PodIdentity{kUid, "worker-1", 3, 0}));
  ASSERT_TRUE(server->write(bytes_of("answer")).ok());
  Got got;
  take(*client, got);
  EXPECT_EQ(got.text, "answer");
}

TEST_F(TlsStreamTest, APodThatPosesAsAnotherRankIsRefused) {
  Pair sockets = make_pair();
  const auto client = member("worker-2", "worker-1").open(std::move(sockets.ours)).value();
  const auto server = head().open(std::move(sockets.theirs)).value();
  const auto [to_client, to_server] = talk(*client, *server);
  EXPECT_EQ(to_server.text, "");
  EXPECT_EQ(to_server.status.code(), Code::kUnauthenticated);
  EXPECT_THAT(to_server.status.message(), HasSubstr("worker-2"));
  EXPECT_FALSE(server->peer().has_value());
  EXPECT_EQ(to_client.status.code(), Code::kUnauthenticated);
}

TEST_F(TlsStreamTest, ATokenOfAnotherJobIsRefusedWithTheFindersWords) {
  Pair sockets = make_pair();
  const auto client = member("worker-1", "worker-1", "other").open(std::move(sockets.ours)).value();
  const auto server = head().open(std::move(sockets.theirs)).value();
  const auto [to_client, to_server] = talk(*client, *server);
  EXPECT_EQ(to_server.text, "");
  EXPECT_EQ(to_server.status.code(), Code::kUnauthenticated);
  EXPECT_THAT(to_server.status.message(), HasSubstr("of another job"));
  EXPECT_EQ(to_client.status.code(), Code::kUnauthenticated);
}

TEST_F(TlsStreamTest, ATokenOfAnotherPartIsRefused) {
  Pair sockets = make_pair();
  const auto client = Tls::client({.job_uid = kUid, .member = "worker-1"},
                                  derive_member_key(wire::random_secret(), kUid, "worker-1"))
                          .value()
                          .open(std::move(sockets.ours))
                          .value();
  const auto server = head().open(std::move(sockets.theirs)).value();
  const auto [to_client, to_server] = talk(*client, *server);
  EXPECT_EQ(to_server.status.code(), Code::kUnauthenticated);
}

TEST_F(TlsStreamTest, WhoPosesAsTheHeadIsRefused) {
  Pair sockets = make_pair();
  const auto client = member("worker-1", "worker-1").open(std::move(sockets.ours)).value();
  const auto server =
      Tls::server([](const PodIdentity&) -> Result<Key> { return wire::random_secret(); })
          .value()
          .open(std::move(sockets.theirs))
          .value();
  const auto [to_client, to_server] = talk(*client, *server);
  EXPECT_EQ(to_client.status.code(), Code::kUnauthenticated);
  EXPECT_FALSE(client->is_proved());
}

/// Passes on what one side writes; returns it.
std::string pass(int from, int to) {
  std::array<char, 8192> buffer{};
  const ssize_t got = recv(from, buffer.data(), buffer.size(), MSG_DONTWAIT);
  const std::string text(buffer.data(), got > 0 ? static_cast<size_t>(got) : 0);
  if (to < 0 || text.empty()) return text;
  EXPECT_EQ(send(to, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  return text;
}

TEST_F(TlsStreamTest, AReplayIsRefused) {
  Pair left = make_pair(), right = make_pair();
  const auto client = member("worker-1", "worker-1").open(std::move(left.ours)).value();
  const auto server = head().open(std::move(right.theirs)).value();
  std::string recorded;
  Got from_client, from_server;
  size_t said = 0;
  for (int turn = 0; turn < 20; ++turn) {
    if (said == 0) said = client->write(bytes_of("end all")).value();
    recorded += pass(left.theirs.get(), right.ours.get());
    take(*server, from_client);
    (void)pass(right.ours.get(), left.theirs.get());
    take(*client, from_server);
  }
  ASSERT_EQ(from_client.text, "end all");

  Pair again = make_pair();
  const auto victim = head().open(std::move(again.theirs)).value();
  ASSERT_EQ(send(again.ours.get(), recorded.data(), recorded.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(recorded.size()));
  Got got;
  for (int turn = 0; turn < 5 && got.status.ok(); ++turn) take(*victim, got);
  EXPECT_EQ(got.text, "");
  EXPECT_FALSE(got.status.ok());
  EXPECT_FALSE(victim->peer().has_value());
}

TEST_F(TlsStreamTest, BytesThatAreNoTlsAreRefused) {
  Pair sockets = make_pair();
  const auto server = head().open(std::move(sockets.theirs)).value();
  const std::string text = "GET / HTTP/1.0\r\n\r\n";
  ASSERT_GT(send(sockets.ours.get(), text.data(), text.size(), MSG_NOSIGNAL), 0);
  Got got;
  take(*server, got);
  EXPECT_EQ(got.status.code(), Code::kUnauthenticated);
}

TEST_F(TlsStreamTest, AnOlderVersionIsRefused) {
  Pair sockets = make_pair();
  const auto server = head().open(std::move(sockets.theirs)).value();
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
  SSL* ssl = SSL_new(context);
  SSL_set_fd(ssl, sockets.ours.get());
  EXPECT_LE(SSL_connect(ssl), 0);
  Got got;
  take(*server, got);
  EXPECT_EQ(got.status.code(), Code::kUnauthenticated);
  SSL_free(ssl);
  SSL_CTX_free(context);
}

TEST_F(TlsStreamTest, AChangedByteEndsTheConnection) {
  Pair left = make_pair(), right = make_pair();
  const auto client = member("worker-1", "worker-1").open(std::move(left.ours)).value();
  const auto server = head().open(std::move(right.theirs)).value();
  Got from_client, from_server;
  size_t said = 0;
  for (int turn = 0; turn < 20; ++turn) {
    if (said == 0) said = client->write(bytes_of("a")).value();
    (void)pass(left.theirs.get(), right.ours.get());
    take(*server, from_client);
    (void)pass(right.ours.get(), left.theirs.get());
    take(*client, from_server);
  }
  ASSERT_EQ(from_client.text, "a");
  ASSERT_EQ(client->write(bytes_of("pay 1")).value(), 5U);
  std::string sealed = pass(left.theirs.get(), -1);
  sealed.back() = static_cast<char>(sealed.back() ^ 1);
  ASSERT_GT(send(right.ours.get(), sealed.data(), sealed.size(), MSG_NOSIGNAL), 0);
  take(*server, from_client);
  EXPECT_EQ(from_client.status.code(), Code::kDataLoss);
  EXPECT_EQ(from_client.text, "a");
}

TEST_F(TlsStreamTest, ManyBytesPassWhileOneSideIsSlow) {
  Pair sockets = make_pair();
  const auto client = member("worker-1", "worker-1").open(std::move(sockets.ours)).value();
  const auto server = head().open(std::move(sockets.theirs)).value();
  std::string all(size_t{3} << 20U, 'x');
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i * 31 + i / 977);
  Got got, nothing;
  size_t said = 0;
  for (int turn = 0; turn < 100000 && got.text.size() < all.size(); ++turn) {
    if (said < all.size()) {
      const auto count = client->write(bytes_of(all).subspan(said));
      ASSERT_TRUE(count.ok()) << count.status().message();
      said += *count;
    }
    take(*server, got);
    take(*client, nothing);
    ASSERT_TRUE(got.status.ok()) << got.status.message();
  }
  EXPECT_EQ(got.text, all);
  EXPECT_EQ(nothing.text, "");
}

TEST_F(TlsStreamTest, AnEndIsUnavailable) {
  Pair sockets = make_pair();
  auto client = member("worker-1", "worker-1").open(std::move(sockets.ours)).value();
  const auto server = head().open(std::move(sockets.theirs)).value();
  auto [to_client, to_server] = talk(*client, *server);
  client.reset();
  take(*server, to_server);
  EXPECT_EQ(to_server.status.code(), Code::kUnavailable);
}

}  // namespace
}  // namespace corro::secure
