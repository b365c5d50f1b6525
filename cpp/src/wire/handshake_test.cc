#include "wire/handshake.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "wire/secret.h"

namespace corro::wire {
namespace {

using ::testing::HasSubstr;

HandshakeIdentity identity_of(int32_t rank, std::string_view job = "job", uint32_t epoch = 0) {
  return {.job = digest_of(job), .epoch = epoch, .rank = rank, .size = 4};
}

/// Carries one message in pieces of at most `piece` bytes.
template <typename Receiver>
Status carry(BytesView bytes, Receiver& to, size_t piece = 1000) {
  while (!bytes.empty()) {
    const size_t count = std::min({piece, bytes.size(), to.wanted()});
    if (count == 0) return {Code::kInternal, "more bytes than wanted"};
    CORRO_TRY(to.feed(bytes.first(count)));
    bytes = bytes.subspan(count);
  }
  return {};
}

/// Runs all messages; the first failure ends it.
Status run(ClientHandshake& client, ServerHandshake& server, size_t piece = 1000) {
  CORRO_TRY(carry(client.take_output(), server, piece));
  CORRO_TRY(carry(server.take_output(), client, piece));
  CORRO_TRY(carry(client.take_output(), server, piece));
  if (client.done()) return {Code::kInternal, "done before it is welcome"};
  return server.done() ? carry(kAdmitted, client, piece) : Status();
}

TEST(Handshake, TwoWhoKnowTheSecretAuthenticateEachOtherWhateverThePieces) {
  const Secret secret = random_secret();
  for (const size_t piece : {1U, 7U, 31U, 1000U}) {
    ClientHandshake client(identity_of(3), 1, secret);
    ServerHandshake server(identity_of(1), secret);
    ASSERT_TRUE(run(client, server, piece).ok());
    EXPECT_TRUE(client.done());
    EXPECT_TRUE(server.done());
    EXPECT_EQ(server.peer_rank(), 3);
    EXPECT_EQ(server.wanted(), 0U) << "not a byte of the stream is read";
    EXPECT_EQ(client.wanted(), 0U);
  }
}

TEST(Handshake, WhatIsNoWelcomeIsRefused) {
  const Secret secret = random_secret();
  ClientHandshake client(identity_of(3), 1, secret);
  ServerHandshake server(identity_of(1), secret);
  ASSERT_TRUE(carry(client.take_output(), server).ok());
  ASSERT_TRUE(carry(server.take_output(), client).ok());
  const std::array<std::byte, 1> other = {std::byte{0xC7}};
  EXPECT_EQ(client.feed(other).code(), Code::kUnauthenticated);
  EXPECT_FALSE(client.done());
}

TEST(Handshake, SaysWhatTheConnectionIsFor) {
  const Secret secret = random_secret();
  for (const Purpose purpose :
       {Purpose::kStream, Purpose::kLiveness, Purpose::kJoining, Purpose::kBootstrap}) {
    ClientHandshake client(identity_of(3), 1, secret, purpose);
    ServerHandshake server(identity_of(1), secret);
    ASSERT_TRUE(run(client, server).ok());
    EXPECT_EQ(server.purpose(), purpose);
  }
  RawHello unknown = encode_hello({});
  unknown[10] = std::byte{kPurposes};
  EXPECT_EQ(decode_hello(unknown).status().code(), Code::kInvalidArgument);
}

TEST(Handshake, TheWrongSecretIsNoticedByEitherSide) {
  const Secret secret = random_secret();
  ClientHandshake client(identity_of(3), 1, secret);
  ServerHandshake impostor(identity_of(1), random_secret());
  ASSERT_TRUE(carry(client.take_output(), impostor).ok());
  EXPECT_EQ(carry(impostor.take_output(), client).code(), Code::kUnauthenticated);
  EXPECT_FALSE(client.done());
  EXPECT_TRUE(client.take_output().empty()) << "no proof for an impostor";

  ServerHandshake server(identity_of(1), secret);
  ClientHandshake honest(identity_of(3), 1, secret);
  ASSERT_TRUE(carry(honest.take_output(), server).ok());
  EXPECT_EQ(carry(Bytes(kProofBytes), server).code(), Code::kUnauthenticated);
  EXPECT_FALSE(server.done());
}

TEST(Handshake, AReplayedConversationIsWorthNothing) {
  const Secret secret = random_secret();
  ClientHandshake client(identity_of(3), 1, secret);
  ServerHandshake server(identity_of(1), secret);
  const Bytes hello = client.take_output();
  ASSERT_TRUE(carry(hello, server).ok());
  ASSERT_TRUE(carry(server.take_output(), client).ok());
  const Bytes proof = client.take_output();
  ASSERT_TRUE(carry(proof, server).ok());

  ServerHandshake again(identity_of(1), secret);
  ASSERT_TRUE(carry(hello, again).ok()) << "anybody can repeat a hello";
  EXPECT_EQ(carry(proof, again).code(), Code::kUnauthenticated);
}

TEST(Handshake, TheServersProofIsNoProofOfAClient) {
  const Secret secret = random_secret();
  ServerHandshake server(identity_of(1), secret);
  ClientHandshake client(identity_of(3), 1, secret);
  ASSERT_TRUE(carry(client.take_output(), server).ok());
  const Bytes challenge = server.take_output();
  EXPECT_EQ(carry(BytesView(challenge).subspan(kNonceBytes), server).code(),
            Code::kUnauthenticated);
}

TEST(Handshake, EveryBitOfItCounts) {
  const Secret secret = random_secret();
  for (size_t at = 0; at < kHelloBytes; ++at) {
    ClientHandshake client(identity_of(3), 1, secret);
    ServerHandshake server(identity_of(1), secret);
    Bytes hello = client.take_output();
    hello[at] ^= std::byte{1};
    const bool refused = !carry(hello, server).ok() || !carry(server.take_output(), client).ok();
    EXPECT_TRUE(refused) << "byte " << at;
  }
  for (size_t at = 0; at < kChallengeBytes; ++at) {
    ClientHandshake client(identity_of(3), 1, secret);
    ServerHandshake server(identity_of(1), secret);
    ASSERT_TRUE(carry(client.take_output(), server).ok());
    Bytes challenge = server.take_output();
    challenge[at] ^= std::byte{1};
    EXPECT_EQ(carry(challenge, client).code(), Code::kUnauthenticated) << "byte " << at;
  }
}

TEST(Handshake, OtherJobsEpochsAndRanksAreRefusedAtTheHello) {
  const Secret secret = random_secret();
  const auto refused = [&secret](const HandshakeIdentity& client_side, int32_t to) {
    ClientHandshake client(client_side, to, secret);
    ServerHandshake server(identity_of(1), secret);
    const Status status = carry(client.take_output(), server);
    EXPECT_TRUE(server.take_output().empty()) << "strangers learn nothing";
    return status.code() == Code::kUnauthenticated;
  };
  EXPECT_TRUE(refused(identity_of(3, "other job"), 1));
  EXPECT_TRUE(refused(identity_of(3, "job", /*epoch=*/1), 1));
  EXPECT_TRUE(refused(identity_of(3), 2));
  EXPECT_TRUE(refused(identity_of(1), 1)) << "itself";
  EXPECT_TRUE(refused(identity_of(4), 1));
  EXPECT_TRUE(refused(identity_of(-1), 1));
}

TEST(Handshake, GarbageIsRefusedAtTheFirstMessage) {
  ServerHandshake server(identity_of(1), random_secret());
  const std::string http =
      "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: a browser that wandered off\r\n\r\n";
  EXPECT_EQ(server.feed(std::as_bytes(std::span(http)).first(kHelloBytes)).code(),
            Code::kInvalidArgument);
  EXPECT_TRUE(server.take_output().empty());
}

TEST(Handshake, HelloIsTheOneOfTheDocument) {
  Hello hello{.epoch = 5, .from = 3, .to = 1};
  hello.job.fill(std::byte{0xAA});
  hello.nonce.fill(std::byte{0xBB});
  const RawHello raw = encode_hello(hello);
  const std::string start(
      "\xC7"
      "corros1"
      "\x02\x00\x00\x00"
      "\x05\x00\x00\x00",
      16);
  EXPECT_EQ(std::memcmp(raw.data(), start.data(), start.size()), 0);
  EXPECT_EQ(raw[16], std::byte{0xAA});
  EXPECT_EQ(raw[32], std::byte{3});
  EXPECT_EQ(raw[36], std::byte{1});
  EXPECT_EQ(raw[40], std::byte{0xBB});
}

TEST(LocalHello, ReadsBackWhatItWritesAndNothingElse) {
  const LocalHello hello{.purpose = Purpose::kJoining,
                         .job = digest_of("j"),
                         .epoch = 2,
                         .from = 3,
                         .to = 1,
                         .descriptors = 4};
  const RawLocalHello raw = encode_local_hello(hello);
  const LocalHello read = decode_local_hello(raw).value();
  EXPECT_EQ(read.purpose, Purpose::kJoining);
  EXPECT_EQ(read.job, hello.job);
  EXPECT_EQ(read.epoch, 2U);
  EXPECT_EQ(read.from, 3);
  EXPECT_EQ(read.to, 1);
  EXPECT_EQ(read.descriptors, 4U);
  EXPECT_FALSE(decode_local_hello(BytesView(raw).first(kLocalHelloBytes - 1)).ok());
  for (const size_t at : {0U, 8U, 11U, 44U}) {
    RawLocalHello changed = raw;
    changed[at] ^= std::byte{1};
    EXPECT_FALSE(decode_local_hello(changed).ok()) << "byte " << at;
  }
}

TEST(Secret, IsReadFromAFileThatOnlyItsOwnerMayRead) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("corro-secret-" + random_hex(8));
  const std::string hex = "00" + std::string(60, 'a') + "Ff";
  std::ofstream(path) << hex << "\n";
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  const auto refused = read_secret_file(path);
  EXPECT_EQ(refused.status().code(), Code::kPermissionDenied);
  EXPECT_THAT(refused.status().message(), HasSubstr("chmod 600"));
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  const Secret secret = read_secret_file(path).value();
  EXPECT_EQ(secret.front(), std::byte{0});
  EXPECT_EQ(secret[1], std::byte{0xAA});
  EXPECT_EQ(secret.back(), std::byte{0xFF});
  std::filesystem::remove(path);
  EXPECT_EQ(read_secret_file(path).status().code(), Code::kNotFound);
  EXPECT_EQ(read_secret_file("/dev/null").status().code(), Code::kPermissionDenied);
}

TEST(Secret, NonsenseIsRefusedWithoutRepeatingIt) {
  for (const std::string& text : {std::string(), std::string(63, 'a'), std::string(65, 'a'),
                                  std::string(64, 'g'), std::string("secret")}) {
    const auto refused = parse_secret(text);
    EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
    if (!text.empty()) {
      EXPECT_EQ(refused.status().message().find(text), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace corro::wire
