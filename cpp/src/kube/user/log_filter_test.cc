#include "kube/user/log_filter.h"

#include <gtest/gtest.h>

#include <string>

namespace corro::kube {
namespace {

struct Shown {
  std::string out, err;
};

/// Fed in pieces of so many bytes.
Shown filtered(const std::string& log, size_t piece, bool shows_head = false) {
  Shown shown;
  LogFilter filter(shows_head, [&shown](io::Output stream, std::string_view bytes) {
    (stream == io::Output::kOut ? shown.out : shown.err) += bytes;
  });
  for (size_t i = 0; i < log.size(); i += piece)
    filter.feed(std::string_view(log).substr(i, piece));
  filter.finish();
  return shown;
}

TEST(LogFilter, KnowsWhoseLinesTheyAreHoweverTheyAreCut) {
  const std::string log =
      "corro head: listening at 0.0.0.0:7077\n"
      "loss 1\ncorro\n\ncorro: rank 1 waits\ncorro heads north\nend without a newline";
  for (size_t piece = 1; piece <= log.size(); ++piece) {
    const Shown shown = filtered(log, piece);
    EXPECT_EQ(shown.out, "loss 1\ncorro\n\ncorro heads north\nend without a newline");
    EXPECT_EQ(shown.err, "corro: rank 1 waits\n");
    EXPECT_TRUE(filtered(log, piece, true).err.starts_with("corro head: listening"));
  }
}

TEST(LogFilter, TakesACoordinatorsLinesForTheHeads) {
  const std::string log =
      "corro coordinator: leads in term 1; agents dial 0.0.0.0:7077\ncorro coordinates\n";
  for (size_t piece = 1; piece <= log.size(); ++piece) {
    EXPECT_EQ(filtered(log, piece).out, "corro coordinates\n");
    EXPECT_EQ(filtered(log, piece).err, "");
    EXPECT_TRUE(filtered(log, piece, true).err.starts_with("corro coordinator: leads"));
  }
}

TEST(LogFilter, ShowsAProgressBarAtOnce) {
  Shown shown;
  LogFilter filter(false, [&shown](io::Output, std::string_view bytes) { shown.out += bytes; });
  filter.feed("10 %\r");
  EXPECT_EQ(shown.out, "10 %\r");
  filter.feed("20 %\r");
  EXPECT_EQ(shown.out, "10 %\r20 %\r");
}

}  // namespace
}  // namespace corro::kube
