#include "kube/client/websocket_frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::kube {
namespace {

using namespace std::string_literals;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kMostMessage = 70000;
/// That of RFC 6455, section 5.7.
constexpr std::array<uint8_t, 4> kMask = {0x37, 0xFA, 0x21, 0x3D};

struct SeenFrames {
  std::vector<std::string> messages;  ///< The number of the op, a blank, the payload.
  Status status;
};

SeenFrames read_in_pieces(const std::string& bytes, size_t piece_bytes) {
  WebSocketReader reader(kMostMessage, "name");
  SeenFrames seen;
  for (size_t i = 0; i < bytes.size() && seen.status.ok(); i += piece_bytes) {
    seen.status = reader.feed(std::string_view(bytes).substr(i, piece_bytes),
                              [&](WebSocketOp op, std::string_view payload) {
                                seen.messages.push_back(std::to_string(static_cast<int>(op)) + " " +
                                                        std::string(payload));
                                return Status();
                              });
  }
  return seen;
}

TEST(WebSocketFrames, AreReadHoweverTheyAreCut) {
  // The examples of RFC 6455, section 5.7: text, text in two parts with a ping between, and sizes.
  const std::string bytes = "\x81\x05Hello"s + "\x01\x03Hel" + "\x89\x05Hello" + "\x80\x02lo" +
                            "\x82\x7E\x01\x00"s + std::string(256, 'a') +
                            "\x82\x7F\x00\x00\x00\x00\x00\x01\x00\x00"s + std::string(65536, 'b') +
                            "\x88\x00"s;
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}, size_t{1000}, bytes.size()}) {
    const SeenFrames seen = read_in_pieces(bytes, piece);
    EXPECT_TRUE(seen.status.ok()) << seen.status.message();
    EXPECT_THAT(seen.messages,
                ElementsAre("1 Hello", "9 Hello", "1 Hello", "2 " + std::string(256, 'a'),
                            "2 " + std::string(65536, 'b'), "8 "));
  }
}

TEST(WebSocketFrames, OfAServerThatBreaksTheRulesAreRefused) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"\xC1\x00"s, "a bit that must be zero"},
      {"\x83\x00"s, "of a kind that is not known"},
      {"\x81\x85\x37\xFA\x21\x3D\x7F\x9F\x4D\x51\x58"s, "masked"},
      {"\x82\x7E\x00\x7D"s, "a short length"},
      {"\x82\x7F\x00\x00\x00\x00\x00\x00\xFF\xFF"s, "a short length"},
      {"\x09\x00"s, "a control frame"},
      {"\x89\x7E\x00\x7E"s, "a control frame"},
      {"\x80\x00"s, "a part of no message"},
      {"\x02\x01x\x82\x01y"s, "a message inside of another one"},
  };
  for (const auto& [bytes, words] : table) {
    const Status refused = read_in_pieces(bytes, 1).status;
    EXPECT_EQ(refused.code(), Code::kDataLoss) << words;
    EXPECT_THAT(refused.message(), HasSubstr(words));
    EXPECT_THAT(refused.message(), testing::StartsWith("name: "));
  }
}

TEST(WebSocketFrames, OverTheBoundAreRefusedBeforeTheyCome) {
  const std::string most(kMostMessage - 10, 'x');
  const std::string part = "\x02\x7F\x00\x00\x00\x00\x00\x01\x11\x66"s + most;
  EXPECT_TRUE(read_in_pieces(part + "\x80\x0A", part.size() + 2).status.ok());
  const Status parts = read_in_pieces(part + "\x80\x0B", part.size() + 2).status;
  EXPECT_EQ(parts.code(), Code::kResourceExhausted) << parts.message();
  const Status whole = read_in_pieces("\x82\x7F\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"s, 20).status;
  EXPECT_EQ(whole.code(), Code::kResourceExhausted) << whole.message();
}

TEST(WebSocketFrames, EndWithTheFailureOfTheVisitor) {
  WebSocketReader reader(kMostMessage, "name");
  const Status status =
      reader.feed("\x81\x01x\x81\x01y", [](WebSocketOp /*op*/, std::string_view payload) {
        return Status(Code::kAborted, std::string(payload));
      });
  EXPECT_EQ(status.message(), "x");
}

TEST(WebSocketFrames, AreWrittenMasked) {
  EXPECT_EQ(websocket_frame(WebSocketOp::kText, "Hello", kMask),
            "\x81\x85\x37\xFA\x21\x3D\x7F\x9F\x4D\x51\x58"s);
  EXPECT_EQ(websocket_frame(WebSocketOp::kPong, "Hello", kMask),
            "\x8A\x85\x37\xFA\x21\x3D\x7F\x9F\x4D\x51\x58"s);
  const auto head_of = [](size_t bytes) {
    const std::string frame = websocket_frame(WebSocketOp::kBinary, std::string(bytes, 0), {});
    EXPECT_EQ(frame.substr(frame.size() - bytes - 4), std::string(bytes + 4, 0));
    return frame.substr(0, frame.size() - bytes - 4);
  };
  EXPECT_EQ(head_of(125), "\x82\xFD"s);
  EXPECT_EQ(head_of(126), "\x82\xFE\x00\x7E"s);
  EXPECT_EQ(head_of(65535), "\x82\xFE\xFF\xFF"s);
  EXPECT_EQ(head_of(65536), "\x82\xFF\x00\x00\x00\x00\x00\x01\x00\x00"s);
}

}  // namespace
}  // namespace corro::kube
