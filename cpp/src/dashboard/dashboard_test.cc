#include "dashboard/dashboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dashboard/page_files.h"

namespace corro::dashboard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::EndsWith;
using testing::HasSubstr;

constexpr Time kNow{seconds(100)};

TEST(Dashboard, ReadsAddressesAsPeopleWriteThem) {
  EXPECT_EQ(*parse_address("--dashboard", "127.0.0.1:0"), "127.0.0.1:0");
  EXPECT_EQ(*parse_address("--dashboard", "[::1]:8080"), "[::1]:8080");
  EXPECT_EQ(*parse_address("--dashboard", "localhost:8080"), "127.0.0.1:8080");
  for (const char* wrong :
       {"", "8080", "127.0.0.1", "127.0.0.1:70000", "node7:80", "localhost:x"}) {
    const auto address = parse_address("--dashboard", wrong);
    ASSERT_FALSE(address.ok()) << wrong;
    EXPECT_EQ(address.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(address.status().message(), HasSubstr("--dashboard"));
  }
}

TEST(Dashboard, TellsPeopleAnAddressThatTheyCanOpen) {
  EXPECT_EQ(address_for_people("127.0.0.1:80", "ab", "node7"), "http://127.0.0.1:80/?token=ab");
  EXPECT_EQ(address_for_people("0.0.0.0:80", "ab", "node7"), "http://node7:80/?token=ab");
  EXPECT_EQ(address_for_people("[::]:80", "ab", "node7"), "http://node7:80/?token=ab");
}

TEST(SharedBoard, APictureIsDueEachSecondAndSoonAfterAChange) {
  SharedBoard board;
  EXPECT_LE(board.due(), kNow);
  board.show({.job = "3f2a"}, kNow);
  EXPECT_EQ(board.shown(), kNow);
  EXPECT_EQ(board.copy().picture().job, "3f2a");
  EXPECT_EQ(board.due(), kNow + seconds(1));
  board.hear({.kind = "step"});
  EXPECT_EQ(board.due(), kNow + seconds(1));
  board.hear({.kind = "ended"});
  EXPECT_EQ(board.due(), kNow + milliseconds(200));
}

TEST(Dashboard, NobodyWatchesBeforeSomebodyAsks) {
  const SharedBoard board;
  const auto dashboard = Dashboard::open({.address = "127.0.0.1:0", .token = "ab"}, board, nullptr);
  ASSERT_TRUE(dashboard.ok()) << dashboard.status().message();
  EXPECT_FALSE((*dashboard)->is_watched(kNow));
}

TEST(Dashboard, APortThatIsTakenIsSaid) {
  const SharedBoard board;
  const auto first = Dashboard::open({.address = "127.0.0.1:0", .token = "ab"}, board, nullptr);
  ASSERT_TRUE(first.ok());
  const auto second =
      Dashboard::open({.address = (*first)->address(), .token = "ab"}, board, nullptr);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr("Address already in use"));
}

TEST(Dashboard, ThePageIsWholeSmallAndOfThisMachineAlone) {
  size_t bytes = 0;
  for (const http::Asset& file : page_files()) {
    bytes += file.text.size();
    EXPECT_THAT(std::string(file.text), EndsWith("\n")) << file.name;
    EXPECT_EQ(file.text.find("https://"), std::string_view::npos) << file.name;
  }
  EXPECT_EQ(page_files().size(), 17U);
  EXPECT_LT(bytes, 100U << 10U);
}

}  // namespace
}  // namespace corro::dashboard
