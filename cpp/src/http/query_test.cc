#include "http/query.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::http {
namespace {

using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

TEST(Query, IsDecoded) {
  EXPECT_THAT(parse_query("place=3&search=two+words%21%2b%C3%A4"),
              UnorderedElementsAre(Pair("place", "3"), Pair("search", "two words!+\xC3\xA4")));
}

TEST(Query, TakesWhatIsNoQueryAsItStands) {
  EXPECT_THAT(parse_query(""), IsEmpty());
  EXPECT_THAT(parse_query("&&"), IsEmpty());
  EXPECT_THAT(parse_query("a&=b&c=d=e"),
              UnorderedElementsAre(Pair("a", ""), Pair("", "b"), Pair("c", "d=e")));
  EXPECT_THAT(parse_query("a=%&b=%4&c=%zz&d=%-1&e=% 1"),
              UnorderedElementsAre(Pair("a", "%"), Pair("b", "%4"), Pair("c", "%zz"),
                                   Pair("d", "%-1"), Pair("e", "% 1")));
}

TEST(Query, TheFirstOfSeveralValuesCounts) {
  const Query query = parse_query("a=1&a=2");
  EXPECT_EQ(value_of(query, "a"), "1");
  EXPECT_EQ(value_of(query, "b"), "");
}

TEST(Query, ANumberIsWholeAndInItsRange) {
  const auto number = [](const char* text) { return number_of(parse_query(text), "steps", 1, 20); };
  EXPECT_EQ(**number("steps=20"), 20U);
  EXPECT_FALSE(number("other=7")->has_value());
  EXPECT_FALSE(number("steps=")->has_value());
  for (const char* wrong : {"steps=0", "steps=21", "steps=-1", "steps=7x", "steps=%2B7",
                            "steps=99999999999999999999", "steps=7.0"}) {
    ASSERT_FALSE(number(wrong).ok()) << wrong;
    EXPECT_EQ(number(wrong).status().message(), "steps: give a number from 1 to 20") << wrong;
  }
}

}  // namespace
}  // namespace corro::http
