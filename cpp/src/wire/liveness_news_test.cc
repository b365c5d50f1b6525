#include "wire/liveness_news.h"

#include <gtest/gtest.h>

namespace corro::wire {
namespace {

TEST(LivenessNews, ReadsBackWhatItWritesAndNothingElse) {
  const RawLivenessNews raw = encode_liveness_news({.host = 4, .witness = 7});
  const LivenessNews read = decode_liveness_news(raw).value();
  EXPECT_EQ(read.host, 4);
  EXPECT_EQ(read.witness, 7);
  for (size_t length = 0; length < raw.size(); ++length)
    EXPECT_FALSE(decode_liveness_news(BytesView(raw).first(length)).ok()) << length;
  for (size_t at = 0; at < 4; ++at) {
    RawLivenessNews wrong = raw;
    wrong[at] ^= std::byte{1};
    EXPECT_FALSE(decode_liveness_news(wrong).ok()) << at;
  }
}

}  // namespace
}  // namespace corro::wire
