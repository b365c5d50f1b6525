#include "kube/client/watch_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::kube {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Kind = WatchEvent::Kind;

constexpr size_t kMost = 400;

std::string line_of(const std::string& type, const std::string& name, const std::string& version) {
  return R"({"type":")" + type + R"(","object":{"kind":"Pod","metadata":{"name":")" + name +
         R"(","namespace":"d","resourceVersion":")" + version + "\"}}}\n";
}

struct Seen {
  std::vector<Kind> kinds;
  std::vector<std::string> names;
  Status status;
};

Seen read_pieces(const std::vector<std::string>& pieces) {
  WatchLines lines(kMost, "pods");
  Seen seen;
  for (const std::string& piece : pieces) {
    seen.status = lines.feed(piece, [&](WatchEvent line) {
      seen.kinds.push_back(line.kind);
      seen.names.push_back(line.kind == Kind::kRefused
                               ? line.name
                               : text_at(line.object, {"metadata", "name"}) + "@" +
                                     line.resource_version);
      return Status();
    });
    if (!seen.status.ok()) return seen;
  }
  seen.status = lines.finish();
  return seen;
}

std::vector<std::string> cut_in(const std::string& text, size_t bytes) {
  std::vector<std::string> pieces;
  for (size_t i = 0; i < text.size(); i += bytes) pieces.push_back(text.substr(i, bytes));
  return pieces;
}

TEST(WatchLines, AreReadHoweverTheyAreCut) {
  const std::string text = line_of("ADDED", "a", "1") + "\n" + line_of("MODIFIED", "a", "2") +
                           line_of("BOOKMARK", "", "7") + line_of("DELETED", "a", "9");
  for (const size_t bytes : std::vector<size_t>{1, 2, 7, 100, 100000}) {
    const Seen seen = read_pieces(cut_in(text, bytes));
    EXPECT_TRUE(seen.status.ok()) << seen.status.message();
    EXPECT_THAT(seen.kinds,
                ElementsAre(Kind::kAdded, Kind::kModified, Kind::kBookmark, Kind::kDeleted));
    EXPECT_THAT(seen.names, ElementsAre("a@1", "a@2", "@7", "a@9"));
  }
}

TEST(WatchLines, NameTheObjectThatIsTooLongAndGoOn) {
  // A custom resource's metadata comes in the order of the alphabet: what is long comes first.
  const std::string annotations =
      R"("annotations":{"name":"no","x":"\"{[)" + std::string(2 * kMost, 'x') + R"("},)";
  const std::string big = R"({"type":"ADDED","object":{"apiVersion":"v1","metadata":{)" +
                          annotations + R"("name":"big","namespace":"d","resourceVersion":"3"}}})" +
                          "\n";
  for (const size_t bytes : std::vector<size_t>{1, 50, 100000}) {
    const Seen seen =
        read_pieces(cut_in(line_of("ADDED", "a", "1") + big + line_of("ADDED", "b", "4"), bytes));
    EXPECT_TRUE(seen.status.ok()) << seen.status.message();
    EXPECT_THAT(seen.names, ElementsAre("a@1", "d/big", "b@4"));
  }
}

TEST(WatchLines, SayThatTheyWereCutInTheMiddle) {
  const std::string text = line_of("ADDED", "a", "1") + line_of("ADDED", "b", "2");
  const Seen seen = read_pieces({text.substr(0, text.size() - 10)});
  EXPECT_THAT(seen.names, ElementsAre("a@1"));
  EXPECT_EQ(seen.status.code(), Code::kUnavailable);
  EXPECT_THAT(seen.status.message(), HasSubstr("pods: watch: cut in a line"));
}

TEST(WatchLines, TellErrorsOfTheServer) {
  const Seen seen = read_pieces(
      {R"x({"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version: 1 (5)"}})x"
       "\n"});
  EXPECT_EQ(seen.status.code(), Code::kOutOfRange);
  EXPECT_EQ(seen.status.message(), "pods: watch: 410 Expired: too old resource version: 1 (5)");
}

TEST(WatchLines, RefuseWhatIsNoEvent) {
  for (const char* text :
       {"x\n", "[]\n", "{}\n", "{\"type\":\"ADDED\"}\n", "{\"type\":\"ADDED\",\"object\":[]}\n",
        "{\"type\":\"NEW\",\"object\":{}}\n", "{\"type\":\"ADDED\",\"object\":{}}\n"}) {
    EXPECT_EQ(read_pieces({text}).status.code(), Code::kDataLoss) << text;
  }
  std::string deep(kMost, '[');
  EXPECT_EQ(read_pieces({deep + "\n"}).status.code(), Code::kDataLoss);
}

TEST(Lists, AreCutIntoTheirItems) {
  const std::string text =
      R"({"kind":"PodList","metadata":{"resourceVersion":"42","continue":"abc"},"items":[)"
      R"({"metadata":{"name":"a","x":{"y":[{}]}}},{"metadata":{"name":"}]\""}}]})";
  const auto list = cut_list(text, "pods");
  ASSERT_TRUE(list.ok()) << list.status().message();
  EXPECT_THAT(list->items, ElementsAre(R"({"metadata":{"name":"a","x":{"y":[{}]}}})",
                                       R"({"metadata":{"name":"}]\""}})"));
  EXPECT_EQ(list->resource_version, "42");
  EXPECT_EQ(list->next, "abc");
  const auto empty = cut_list(R"({"metadata":{"resourceVersion":"1"},"items":null})", "pods");
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE(empty->items.empty());
  for (const char* bad : {"", "{}", "[]", R"({"metadata":{"resourceVersion":"1"}})",
                          R"({"metadata":{"resourceVersion":"1"},"items":[{}]"})"}) {
    EXPECT_EQ(cut_list(bad, "pods").status().code(), Code::kDataLoss) << bad;
  }
}

}  // namespace
}  // namespace corro::kube
