#include "wire/peer_record.h"

#include <gtest/gtest.h>

namespace corro::wire {
namespace {

TEST(PeerRecord, ReadsBackWhatItWritesAndNothingElse) {
  const Bytes bytes = encode_peer_record({.pid = 4711,
                                          .host_id = "host",
                                          .unix_name = "corro-x",
                                          .tcp = "[::1]:9",
                                          .settings = "A=1 B=2"});
  const PeerRecord read = decode_peer_record(bytes).value();
  EXPECT_EQ(read.pid, 4711);
  EXPECT_EQ(read.host_id, "host");
  EXPECT_EQ(read.unix_name, "corro-x");
  EXPECT_EQ(read.tcp, "[::1]:9");
  EXPECT_EQ(read.settings, "A=1 B=2");
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(decode_peer_record(BytesView(bytes).first(length)).ok()) << length;
  }
  Bytes longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_peer_record(longer).ok());
  Bytes other_version = bytes;
  other_version[0] = std::byte{1};
  EXPECT_FALSE(decode_peer_record(other_version).ok());
}

TEST(PeerRecord, LengthsAboveTheirCapsAreRefusedBeforeAllocating) {
  ByteWriter writer;
  writer.write(uint32_t{3});
  writer.write(int32_t{1});
  writer.write(uint32_t{0xFFFFFFFF});
  EXPECT_FALSE(decode_peer_record(writer.bytes()).ok());
}

TEST(PeerRecord, TheLongestFitsIntoAnIntroduction) {
  const Bytes bytes = encode_peer_record({.pid = 1,
                                          .host_id = std::string(kMaxHostId, 'h'),
                                          .unix_name = std::string(kMaxUnixName, 'u'),
                                          .tcp = std::string(kMaxTcpAddress, 't'),
                                          .settings = std::string(kMaxSettings, 's')});
  EXPECT_LE(bytes.size(), kMaxPeerRecord);
}

}  // namespace
}  // namespace corro::wire
