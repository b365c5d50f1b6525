#include "wire/joining_packet.h"

#include <gtest/gtest.h>

namespace corro::wire {
namespace {

JoiningPacket packet_of(size_t introductions) {
  JoiningPacket packet{.of_host = true, .round = 3, .introductions = {}};
  for (size_t i = 0; i < introductions; ++i) {
    packet.introductions.push_back({.rank = static_cast<int32_t>(i),
                                    .record = Bytes(i, static_cast<std::byte>(i)),
                                    .descriptors = static_cast<uint8_t>(i % 3)});
  }
  return packet;
}

TEST(JoiningPacket, ReadsBackWhatItWritesAndNothingElse) {
  const Bytes bytes = encode_joining_packet(packet_of(5));
  const auto header = BytesView(bytes).first<kJoiningHeaderBytes>();
  EXPECT_EQ(joining_packet_bytes(header).value(), bytes.size());
  const JoiningPacket read = decode_joining_packet(bytes).value();
  EXPECT_EQ(read.kind, JoiningPacket::Kind::kRound);
  EXPECT_TRUE(read.of_host);
  EXPECT_EQ(read.round, 3);
  ASSERT_EQ(read.introductions.size(), 5U);
  EXPECT_EQ(read.introductions[4].rank, 4);
  EXPECT_EQ(read.introductions[4].record, Bytes(4, std::byte{4}));
  EXPECT_EQ(read.introductions[4].descriptors, 1);
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(decode_joining_packet(BytesView(bytes).first(length)).ok()) << length;
  Bytes longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_joining_packet(longer).ok());
}

TEST(JoiningPacket, WhatIsNotOneIsRefused) {
  const Bytes bytes = encode_joining_packet(packet_of(1));
  // Magic, kind, of host, round, number of introductions, bytes, descriptors of the first.
  for (const size_t at : {0U, 1U, 2U, 3U, 4U, 10U, 16U}) {
    Bytes changed = bytes;
    changed[at] = std::byte{0x7F};
    EXPECT_FALSE(decode_joining_packet(changed).ok()) << at;
  }
}

TEST(JoiningFailure, ReadsBackWhatItWritesAndNothingElse) {
  const Bytes bytes = encode_joining_failure(
      {.code = Code::kDeadlineExceeded, .culprit = 3, .text = "rank 3 did not start"});
  const JoiningFailure read = decode_joining_failure(bytes).value();
  EXPECT_EQ(read.code, Code::kDeadlineExceeded);
  EXPECT_EQ(read.culprit, 3);
  EXPECT_EQ(read.text, "rank 3 did not start");
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(decode_joining_failure(BytesView(bytes).first(length)).ok()) << length;
  for (const std::byte code : {std::byte{0}, std::byte{17}}) {
    Bytes changed = bytes;
    changed[0] = code;
    EXPECT_FALSE(decode_joining_failure(changed).ok());
  }
  const Bytes cut = encode_joining_failure(
      {.code = Code::kUnknown, .culprit = -1, .text = std::string(5000, 'x')});
  EXPECT_EQ(decode_joining_failure(cut)->text.size(), kMaxFailureText);
}

}  // namespace
}  // namespace corro::wire
