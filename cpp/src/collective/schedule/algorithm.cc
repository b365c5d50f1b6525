#include "collective/schedule/algorithm.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>

#include <fmt/format.h>

namespace corro::collective {
namespace {

using enum OpKind;

struct Entry {
  std::string_view name;
  uint32_t kinds;  ///< Bit set of OpKind.
};

template <typename... Kinds>
constexpr uint32_t set_of(Kinds... kinds) {
  return ((1U << static_cast<uint32_t>(kinds)) | ...);
}

/// By Algorithm.
constexpr std::array<Entry, kAlgorithmCount> kEntries = {{
    {"one_shot", set_of(kAllreduce)},
    {"two_shot", set_of(kAllreduce, kReducescatter)},
    {"ring", set_of(kAllreduce, kReducescatter, kAllgather, kBroadcast)},
    {"recursive_doubling", set_of(kAllreduce)},
    {"rabenseifner", set_of(kAllreduce)},
    {"binomial", set_of(kBroadcast, kReduce, kGather, kScatter, kBarrier)},
    {"direct",
     set_of(kBroadcast, kReduce, kGather, kScatter, kAllgather, kAlltoall, kBarrier, kSend, kRecv)},
    {"bruck", set_of(kAllgather, kAlltoall)},
    {"two_level",
     set_of(kAllreduce, kReducescatter, kAllgather, kAlltoall, kBroadcast, kReduce, kBarrier)},
    {"served", set_of(kAllreduce)},
}};

std::optional<OpKind> collective_named(std::string_view name) {
  for (int i = 0; i < kOpKindCount; ++i) {
    const auto kind = static_cast<OpKind>(i);
    if (!is_pair(kind) && name_of(kind) == name) return kind;
  }
  return std::nullopt;
}

std::string names_of_collectives() {
  std::string names;
  for (int i = 0; i < kOpKindCount; ++i) {
    const auto kind = static_cast<OpKind>(i);
    if (!is_pair(kind)) names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(kind));
  }
  return names;
}

std::string names_of_algorithms(OpKind kind) {
  std::string names;
  for (int i = 0; i < kAlgorithmCount; ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    if (!can_do(algorithm, kind)) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(algorithm));
  }
  return names;
}

std::optional<Algorithm> algorithm_named(std::string_view name) {
  for (int i = 0; i < kAlgorithmCount; ++i) {
    if (kEntries[static_cast<size_t>(i)].name == name) return static_cast<Algorithm>(i);
  }
  return std::nullopt;
}

std::string_view without_blanks(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(' '), text.size());
  return text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
}

/// "64K" is 65536; nothing for anything else than a number with one of the suffixes, or none.
std::optional<uint64_t> read_bytes(std::string_view text) {
  uint64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  const std::string_view suffix = text.substr(static_cast<size_t>(stop - text.data()));
  if (suffix.empty()) return number;
  constexpr std::string_view kSuffixes = "KkMmGg";
  const size_t which = kSuffixes.find(suffix[0]);
  if (suffix.size() > 1 || which == std::string_view::npos) return std::nullopt;
  const size_t bits = 10 * (which / 2 + 1);
  if (number > UINT64_MAX >> bits) return std::nullopt;
  return number << bits;
}

/// "64K-4M", "-4M" or "64K-" into the rule; false if it is none of them.
bool read_range(std::string_view text, SelectionRule& rule) {
  const size_t dash = text.find('-');
  if (dash == std::string_view::npos || text.size() == 1) return false;
  const std::string_view from = text.substr(0, dash);
  const std::string_view until = text.substr(dash + 1);
  const auto first = from.empty() ? 0 : read_bytes(from);
  const auto end = until.empty() ? UINT64_MAX : read_bytes(until);
  if (!first || !end || *first >= *end) return false;
  rule.from = *first;
  rule.until = *end;
  return true;
}

Status wrong(std::string_view rule, std::string_view what) {
  return {Code::kInvalidArgument, fmt::format("'{}': {}", rule, what)};
}

Result<SelectionRule> parse_rule(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos)
    return wrong(text, "expected OPERATION=ALGORITHM or OPERATION:FROM-UNTIL=ALGORITHM");
  const std::string_view about = without_blanks(text.substr(0, equals));
  const std::string_view name = without_blanks(text.substr(equals + 1));
  const size_t colon = about.find(':');
  SelectionRule rule;
  const auto kind = collective_named(about.substr(0, colon));
  if (!kind) return wrong(text, "expected one of the operations " + names_of_collectives());
  rule.kind = *kind;
  if (colon != std::string_view::npos && !read_range(about.substr(colon + 1), rule))
    return wrong(
        text, "expected a range of bytes FROM-UNTIL such as 64K-4M, 64K- or -4M, FROM below UNTIL");
  const auto algorithm = algorithm_named(name);
  if (!algorithm || !can_do(*algorithm, *kind)) {
    return wrong(text, fmt::format("expected one of the algorithms of {}: {}", name_of(*kind),
                                   names_of_algorithms(*kind)));
  }
  rule.algorithm = *algorithm;
  return rule;
}

}  // namespace

std::string_view name_of(Algorithm algorithm) {
  return kEntries[static_cast<size_t>(algorithm)].name;
}

bool can_do(Algorithm algorithm, OpKind kind) {
  return (kEntries[static_cast<size_t>(algorithm)].kinds & set_of(kind)) != 0;
}

Result<std::vector<SelectionRule>> parse_selection_rules(std::string_view text) {
  std::vector<SelectionRule> rules;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    CORRO_ASSIGN(const SelectionRule rule, parse_rule(text.substr(0, comma)));
    if (rules.size() == kMaxSelectionRules) {
      return Status(Code::kInvalidArgument,
                    fmt::format("expected at most {} rules", kMaxSelectionRules));
    }
    rules.push_back(rule);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return rules;
}

Result<std::vector<SelectionRule>> selection_rules_of(const Environment& environment) {
  auto rules = parse_selection_rules(environment.algorithms);
  if (rules.ok()) return rules;
  return Status(rules.status().code(), "CORRO_ALGORITHMS: " + rules.status().message());
}

}  // namespace corro::collective
