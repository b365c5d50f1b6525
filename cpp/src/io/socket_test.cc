#include "io/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <array>

namespace corro::io {
namespace {

using ::testing::HasSubstr;

Time soon() { return monotonic_now() + std::chrono::seconds(60); }

BytesView bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(SocketAddress, ReadsWhatItWrites) {
  for (const char* text : {"127.0.0.1:80", "0.0.0.0:0", "[::1]:65535", "[::]:1", "[fe80::1%lo]:9",
                           "[2001:db8::7]:443"}) {
    const auto address = SocketAddress::parse(text);
    ASSERT_TRUE(address.ok()) << address.status().to_string();
    EXPECT_EQ(address->to_string(), text);
  }
  EXPECT_EQ(SocketAddress::parse_host("::1", 80)->to_string(), "[::1]:80");
  EXPECT_EQ(SocketAddress::parse_host("[::1]", 80)->to_string(), "[::1]:80");
  EXPECT_EQ(SocketAddress::parse_host("10.0.0.1", 80)->to_string(), "10.0.0.1:80");
}

TEST(SocketAddress, RefusesEverythingElseInOneLine) {
  for (const std::string text :
       {"", ":", "80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:8x",
        "::1:80", "[::1]", "[::1:80", "localhost:80", "256.0.0.1:80", "[::1%nosuchif]:80", "[]:80",
        "[[::1]]:80", "1.2.3.4 :80"}) {
    const auto address = SocketAddress::parse(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(address.status().message(), HasSubstr("'" + text + "'"));
  }
  EXPECT_FALSE(SocketAddress::parse(std::string(5000, '1')).ok());
  EXPECT_FALSE(SocketAddress::parse(std::string("127.0.0.1\0x:80", 14)).ok());
}

TEST(SocketAddress, KnowsLoopbackAndWildcard) {
  EXPECT_TRUE(SocketAddress::parse("127.8.8.8:1")->is_loopback());
  EXPECT_TRUE(SocketAddress::parse("[::1]:1")->is_loopback());
  EXPECT_FALSE(SocketAddress::parse("10.0.0.1:1")->is_loopback());
  EXPECT_TRUE(SocketAddress::parse("0.0.0.0:1")->is_wildcard());
  EXPECT_TRUE(SocketAddress::parse("[::]:1")->is_wildcard());
  EXPECT_FALSE(SocketAddress::parse("[::1]:1")->is_wildcard());
}

class Tcp : public ::testing::TestWithParam<const char*> {};

TEST_P(Tcp, ConnectsAndCarriesBytesAndSeesTheEnd) {
  const auto listening = listen_tcp(SocketAddress::parse(GetParam()).value());
  if (!listening.ok())
    GTEST_SKIP() << "no such address family here: " << listening.status().message();
  const SocketAddress here = local_address(listening->get()).value();
  EXPECT_NE(here.port(), 0);
  EXPECT_FALSE(accept_connection(listening->get())->valid());
  Fd client = connect_tcp(here).value();
  ASSERT_TRUE(wait_ready(listening->get(), POLLIN, soon()));
  const Fd server = accept_connection(listening->get()).value();
  ASSERT_TRUE(server.valid());
  ASSERT_TRUE(wait_ready(client.get(), POLLOUT, soon()));
  EXPECT_TRUE(connect_result(client.get()).ok());
  EXPECT_TRUE(configure_tcp(server.get()).ok());
  EXPECT_EQ(remote_address(server.get())->to_string(), local_address(client.get())->to_string());

  std::array<std::byte, 16> into{};
  EXPECT_TRUE(receive_message(server.get(), into).would_block);
  EXPECT_TRUE(send_message(client.get(), bytes_of("hello")).value());
  ASSERT_TRUE(wait_ready(server.get(), POLLIN, soon()));
  EXPECT_EQ(receive_message(server.get(), into).bytes, 5U);
  client.reset();
  ASSERT_TRUE(wait_ready(server.get(), POLLIN, soon()));
  EXPECT_TRUE(receive_message(server.get(), into).closed);
}

INSTANTIATE_TEST_SUITE_P(Families, Tcp, ::testing::Values("127.0.0.1:0", "[::1]:0"));

/// What the kernel has for an option of a socket.
int option_of(const Fd& fd, int level, int name) {
  int value = -1;
  socklen_t length = sizeof(value);
  EXPECT_EQ(getsockopt(fd.get(), level, name, &value, &length), 0);
  return value;
}

TEST(TcpOptionsTest, NoKernelGivesUpOnAConnectionForData) {
  const Fd listener = listen_tcp(SocketAddress::parse("127.0.0.1:0").value()).value();
  const Fd client = connect_tcp(local_address(listener.get()).value()).value();
  EXPECT_EQ(option_of(client, IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(option_of(client, SOL_SOCKET, SO_KEEPALIVE), 0);
  EXPECT_EQ(option_of(client, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
  EXPECT_NE(fcntl(client.get(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(TcpOptionsTest, AKernelThatIsAskedDetectsALostHostInFourSeconds) {
  const Fd listener = listen_tcp(SocketAddress::parse("127.0.0.1:0").value()).value();
  const TcpOptions options{.detect_lost_host = true};
  const Fd client = connect_tcp(local_address(listener.get()).value(), options).value();
  EXPECT_EQ(option_of(client, SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(option_of(client, IPPROTO_TCP, TCP_KEEPIDLE), 1);
  EXPECT_EQ(option_of(client, IPPROTO_TCP, TCP_KEEPINTVL), 1);
  EXPECT_EQ(option_of(client, IPPROTO_TCP, TCP_KEEPCNT), 3);
  EXPECT_EQ(option_of(client, IPPROTO_TCP, TCP_USER_TIMEOUT), 4000);
}

TEST(ConnectionStatus, TellsNobodyFromSilence) {
  EXPECT_EQ(connection_status("x", ECONNREFUSED).code(), Code::kUnavailable);
  EXPECT_EQ(connection_status("x", ECONNRESET).code(), Code::kAborted);
  EXPECT_EQ(connection_status("x", ETIMEDOUT).code(), Code::kDeadlineExceeded);
  EXPECT_EQ(connection_status("x", EHOSTUNREACH).code(), Code::kDeadlineExceeded);
  EXPECT_EQ(connection_status("x", EAGAIN).code(), Code::kAborted);
}

TEST(TcpConnect, RefusalIsUnavailable) {
  const SocketAddress nobody = [] {
    const Fd listener = listen_tcp(SocketAddress::parse("127.0.0.1:0").value()).value();
    return local_address(listener.get()).value();
  }();
  const auto client = connect_tcp(nobody);
  if (!client.ok()) {
    EXPECT_EQ(client.status().code(), Code::kUnavailable);
    return;
  }
  ASSERT_TRUE(wait_ready(client->get(), POLLOUT, soon()));
  EXPECT_EQ(connect_result(client->get()).code(), Code::kUnavailable);
}

std::string unique_name(const char* what) {
  return fmt::format("corro-test-{}-{}", what, getpid());
}

struct UnixPair {
  Fd client, server;
};

UnixPair connected_pair(const std::string& name) {
  const Fd listener = listen_abstract(name).value();
  UnixPair pair;
  pair.client = connect_abstract(name).value();
  pair.server = accept_connection(listener.get()).value();
  return pair;
}

TEST(AbstractSocket, TellsWhoIsOnTheOtherSide) {
  const UnixPair pair = connected_pair(unique_name("who"));
  for (const Fd* end : {&pair.client, &pair.server}) {
    const PeerCredentials peer = peer_credentials(end->get()).value();
    EXPECT_EQ(peer.uid, geteuid());
    EXPECT_EQ(peer.pid, getpid());
  }
}

TEST(AbstractSocket, NameIsTakenOnceAndGoneWithTheListener) {
  const std::string name = unique_name("name");
  {
    const Fd listener = listen_abstract(name).value();
    EXPECT_EQ(listen_abstract(name).status().code(), Code::kAlreadyExists);
  }
  EXPECT_EQ(connect_abstract(name).status().code(), Code::kUnavailable);
  EXPECT_FALSE(listen_abstract("").ok());
  EXPECT_FALSE(listen_abstract(std::string(101, 'x')).ok());
}

TEST(AbstractSocket, PassesDescriptorsWithAMessage) {
  const UnixPair pair = connected_pair(unique_name("pass"));
  std::array<int, 2> pipes{};
  ASSERT_EQ(pipe2(pipes.data(), O_CLOEXEC), 0);
  Fd reader(pipes[0]);
  Fd writer(pipes[1]);
  ASSERT_TRUE(send_message(pair.client.get(), bytes_of("fd"), pipes).value());
  writer.reset();
  reader.reset();

  std::array<std::byte, 16> into{};
  Received received = receive_message(pair.server.get(), into);
  EXPECT_EQ(received.bytes, 2U);
  EXPECT_FALSE(received.truncated);
  ASSERT_EQ(received.descriptors.size(), 2U);
  EXPECT_NE(fcntl(received.descriptors[0].get(), F_GETFD) & FD_CLOEXEC, 0);
  ASSERT_EQ(::write(received.descriptors[1].get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(received.descriptors[0].get(), &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
}

TEST(AbstractSocket, MessageThatDoesNotFitIsMarked) {
  const UnixPair pair = connected_pair(unique_name("trunc"));
  ASSERT_TRUE(send_message(pair.client.get(), bytes_of("twenty bytes of data")).value());
  ASSERT_TRUE(send_message(pair.client.get(), bytes_of("next")).value());
  std::array<std::byte, 8> into{};
  EXPECT_TRUE(receive_message(pair.server.get(), into).truncated);
  const Received next = receive_message(pair.server.get(), into);
  EXPECT_EQ(next.bytes, 4U);
  EXPECT_FALSE(next.truncated);
}

TEST(AbstractSocket, SendingToTheGoneIsUnavailableAndAFullOneIsNot) {
  UnixPair pair = connected_pair(unique_name("full"));
  bool accepted = true;
  for (int i = 0; i < 100000 && accepted; ++i)
    accepted = send_message(pair.client.get(), bytes_of("filler")).value();
  EXPECT_FALSE(accepted);
  pair.server.reset();
  EXPECT_EQ(send_message(pair.client.get(), bytes_of("x")).status().code(), Code::kUnavailable);
}

TEST(WaitReady, ReturnsAtTheDeadline) {
  const UnixPair pair = connected_pair(unique_name("wait"));
  EXPECT_FALSE(
      wait_ready(pair.client.get(), POLLIN, monotonic_now() + std::chrono::milliseconds(2)));
}

}  // namespace
}  // namespace corro::io
