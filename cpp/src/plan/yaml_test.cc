#include "plan/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <list>
#include <random>
#include <string>

#include <fmt/format.h>

namespace corro::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// YAML's value, as JSON; of what is refused, the message.
std::string read(std::string_view text) {
  const auto value = parse_yaml(text, "f");
  return value.ok() ? value->dump() : value.status().message();
}

TEST(Yaml, GivesTheValuesOfJson) {
  EXPECT_EQ(read("a: 1\nb:\n  - x\n  - {c: [1, 2], d: y}\n"),
            R"({"a":1,"b":["x",{"c":[1,2],"d":"y"}]})");
  EXPECT_EQ(read("# nothing but a comment\n"), "null");
  EXPECT_EQ(read("just text"), R"("just text")");
  EXPECT_EQ(read("- - 1\n  - 2\n- []\n- {}\n"), "[[1,2],[],{}]");
  EXPECT_EQ(read("text: |\n  two\n  lines\n"), R"({"text":"two\nlines\n"})");
  EXPECT_EQ(read("1: a\ntrue: b\n"), R"({"1":"a","true":"b"})");
}

TEST(Yaml, ScalarsAreThoseOfTheCoreSchema) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "null"},
      {"~", "null"},
      {"null", "null"},
      {"Null", "null"},
      {"nUll", R"("nUll")"},
      {"true", "true"},
      {"TRUE", "true"},
      {"False", "false"},
      {"yes", R"("yes")"},
      {"off", R"("off")"},
      {"12", "12"},
      {"+12", "12"},
      {"-12", "-12"},
      {"012", "12"},
      {"0o14", "12"},
      {"0xC", "12"},
      {"0b1", R"("0b1")"},
      {"1_000", R"("1_000")"},
      {"1e3", "1000.0"},
      {"1.5E+3", "1500.0"},
      {".5", "0.5"},
      {"5.", "5.0"},
      {"-0.25", "-0.25"},
      {"1e-2", "0.01"},
      {".", R"(".")"},
      {"1e", R"("1e")"},
      {"1.2.3", R"("1.2.3")"},
      {"e5", R"("e5")"},
      {"nan", R"("nan")"},
      {"Infinity", R"("Infinity")"},
      {"\"12\"", R"("12")"},
      {"'true'", R"("true")"},
      {"80 GiB", R"("80 GiB")"},
      {"-", "[null]"},
      {"18446744073709551615", "18446744073709551615"},
      {"-9223372036854775808", "-9223372036854775808"},
      {"18446744073709551616", "1.8446744073709552e+19"},
      {"-9223372036854775809", "-9.223372036854776e+18"},
  };
  for (const auto& [text, json] : cases) {
    SCOPED_TRACE(text);
    EXPECT_EQ(read(text), json);
  }
  EXPECT_TRUE(std::isnan(parse_yaml(".nan", "f")->get<double>()));
  EXPECT_EQ(parse_yaml("-.inf", "f")->get<double>(), -HUGE_VAL);
  EXPECT_EQ(parse_yaml("1e999", "f")->get<double>(), HUGE_VAL);
}

TEST(Yaml, RefusesWithLineAndPlace) {
  EXPECT_EQ(read("a:\n  b: &x 1\n"),
            "f:2: a.b: anchors (&name) are not read: write the value where it is used");
  EXPECT_EQ(read("a: 1\nb: *x\n"),
            "f:2: b: aliases (*name) are not read: write the value where it is used");
  EXPECT_EQ(read("a: !!int 1\n"), "f:1: a: tags (!name) are not read");
  EXPECT_EQ(read("- 1\n- b: 1\n  c: 2\n  b: 3\n"), "f:4: [1].b: comes twice");
  EXPECT_EQ(read("? [1]\n: 2\n"), "f:1: a field's name must be text");
  EXPECT_EQ(read("a: 1\n---\nb: 2\n"), "f:2: is a second document; one is read");
  EXPECT_EQ(read("a: 1\nb: c: d\n"),
            "f:2: is not YAML: mapping values are not allowed in this context");
  EXPECT_THAT(read("a: [1, 2\nb: 3\n"),
              StartsWith("f:2: a[2]: is not YAML: while parsing a flow "));
  EXPECT_THAT(read("a: 1\n\tb: 2\n"), StartsWith("f:2: "));
  EXPECT_THAT(read("a: 1\nb: \xff\n"), StartsWith("f:2: "));
  EXPECT_THAT(read(std::string("a: 1\nb: \0\n", 10)), StartsWith("f:2: "));
}

TEST(Yaml, HasLimits) {
  EXPECT_EQ(read(std::string(kMostJsonDepth, '[') + std::string(kMostJsonDepth, ']')).size(),
            2 * kMostJsonDepth);
  EXPECT_THAT(read(std::string(kMostJsonDepth + 1, '[')),
              HasSubstr("is nested deeper than 32 levels"));
  EXPECT_THAT(read(std::string(1000000, '[')), HasSubstr("is nested deeper than 32 levels"));
  EXPECT_EQ(read(std::string(kMostYamlBytes + 1, ' ')),
            "f: has 67108865 bytes; at most 67108864 are read");
}

TEST(Yaml, IsReadToTheEndOfItsLimitOfValues) {
  std::string text = "[";
  for (size_t i = 0; i < kMostYamlValues / 1024; ++i) {
    std::string row = "[";
    for (size_t j = 0; j < 1023; ++j) row += "1,";
    text += row + "1],\n";
  }
  EXPECT_EQ(read(text + "]").substr(0, 80), "f:4093: [4092][2]: holds more than 4194304 values");
}

TEST(YamlLines, AreThoseWherePlacesBegin) {
  constexpr std::string_view kText = R"(# a comment
hosts:
  - name: a
    link: {bandwidth: 1,
           latency: 2}
  - name: b
links: [1, 2,
  3]
)";
  const Place hosts{nullptr, "hosts", {}};
  const Place first{&hosts, {}, 0};
  const Place second{&hosts, {}, 1};
  const Place third{&hosts, {}, 2};
  const Place link{&first, "link", {}};
  const Place links{nullptr, "links", {}};
  const auto line = [&](const Place& place) { return line_of(kText, place); };
  EXPECT_EQ(line({}), 0);
  EXPECT_EQ(line(hosts), 2);
  EXPECT_EQ(line(first), 3);
  EXPECT_EQ(line({&first, "name", {}}), 3);
  EXPECT_EQ(line(link), 4);
  EXPECT_EQ(line({&link, "bandwidth", {}}), 4);
  EXPECT_EQ(line({&link, "latency", {}}), 5);
  EXPECT_EQ(line(second), 6);
  EXPECT_EQ(line({&second, "link", {}}), 6);  // It has none.
  EXPECT_EQ(line(third), 2);
  EXPECT_EQ(line({&first, {}, 0}), 3);  // No list.
  EXPECT_EQ(line({&links, {}, 1}), 7);
  EXPECT_EQ(line({&links, {}, 2}), 8);
  EXPECT_EQ(line({&links, "name", {}}), 7);
  EXPECT_EQ(line({nullptr, "matrix", {}}), 0);
}

TEST(YamlLines, AreFoundInJsonToo) {
  constexpr std::string_view kText =
      "{\n\t\"types\": [\n\t\t{\"name\":\"a\",\n\t\t \"experts\":1}\n\t]\n}\n";
  const Place types{nullptr, "types", {}};
  const Place first{&types, {}, 0};
  EXPECT_EQ(line_of(kText, {&first, "experts", {}}), 4);
  EXPECT_EQ(line_of(kText, {&first, "name", {}}), 3);
}

/// A document whose items and fields stand on lines of their own, and the line of each.
struct Lines {
  std::string text;
  std::vector<std::pair<std::string, size_t>> places;
  size_t line = 1;

  void add(std::mt19937& random, const std::string& place, size_t depth) {
    const bool is_list = random() % 2 == 0;
    const size_t count = random() % 4;
    text += is_list ? "[" : "{";
    for (size_t i = 0; i < count; ++i) {
      text += "\n";
      const std::string at = is_list ? fmt::format("{}[{}]", place, i)
                                     : fmt::format("{}{}f{}", place, place.empty() ? "" : ".", i);
      places.emplace_back(at, ++line);
      if (!is_list) text += fmt::format("f{}: ", i);
      if (depth < 4 && random() % 2 == 0) {
        add(random, at, depth + 1);
      } else {
        text += "1";
      }
      text += ",";
    }
    text += is_list ? "]" : "}";
  }
};

/// The same place as Place has it; `parts` keeps what it borrows.
const Place* place_of(const std::string& text, std::list<Place>& parts,
                      std::list<std::string>& names) {
  const Place* around = nullptr;
  for (size_t i = 0; i < text.size();) {
    const size_t end = std::min(text.find_first_of(".[", i + 1), text.size());
    const std::string part = text.substr(i, end - i);
    if (part[0] == '[') {
      parts.push_back({around, {}, std::stoul(part.substr(1))});
    } else {
      names.push_back(part[0] == '.' ? part.substr(1) : part);
      parts.push_back({around, names.back(), {}});
    }
    around = &parts.back();
    i = end;
  }
  return around;
}

TEST(YamlLines, OfRandomDocumentsAreTheLinesThatWereWritten) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    Lines lines;
    lines.add(random, "", 0);
    ASSERT_TRUE(parse_yaml(lines.text, "f").ok()) << lines.text;
    for (const auto& [place, line] : lines.places) {
      std::list<Place> parts;
      std::list<std::string> names;
      const Place* at = place_of(place, parts, names);
      ASSERT_EQ(at->to_string(), place);
      ASSERT_EQ(line_of(lines.text, *at), line) << place << "\n" << lines.text;
    }
  }
}

TEST(Reading, WithItsTextSaysTheLine) {
  constexpr std::string_view kText = "a: 1\nlink:\n  bandwidth: -1\n  latency: .nan\n  up: 1\n";
  const Json document = parse_yaml(kText, "f").value();
  const auto error = [&](auto read_field) {
    Reading reading("f", kText);
    ObjectReader top(document, {}, reading, {"a", "link"});
    const Place at{nullptr, "link", {}};
    ObjectReader link(*top.find("link"), at, reading, {"bandwidth", "latency", "up", "name"});
    read_field(link);
    return reading.status().message();
  };
  EXPECT_EQ(error([](ObjectReader& link) {
              (void)link.quantity("bandwidth", Unit::kBytesPerSecond, {1, 1e18});
            }),
            "f:3: link.bandwidth: must be bytes/s from 1 to 1e+18: a number, or text such as "
            "\"200 Gbit/s\"");
  EXPECT_EQ(error([](ObjectReader& link) { (void)link.real("latency", {0, 1}); }),
            "f:4: link.latency: must be a number from 0 to 1");
  EXPECT_EQ(
      error([](ObjectReader& link) { (void)link.quantity("latency", Unit::kSeconds, {0, 1}); }),
      "f:4: link.latency: must be seconds from 0 to 1: a number, or text such as \"5 us\"");
  EXPECT_EQ(error([](ObjectReader& link) { (void)link.boolean("up"); }),
            "f:5: link.up: must be true or false");
  EXPECT_EQ(error([](ObjectReader& link) { (void)link.text("name"); }),
            "f:2: link.name: is missing");
  EXPECT_EQ(error([](ObjectReader& link) {
              EXPECT_EQ(link.text("name", "x"), "x");
              EXPECT_EQ(link.real("name", {0, 1}, 0.5), 0.5);
              EXPECT_TRUE(link.boolean("name", true));
            }),
            "");
}

}  // namespace
}  // namespace corro::plan
