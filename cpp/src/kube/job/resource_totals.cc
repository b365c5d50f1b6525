#include "kube/job/resource_totals.h"

#include <algorithm>
#include <array>
#include <utility>

namespace corro::kube {
namespace {

constexpr Billionths kOne = 1'000'000'000;
constexpr Billionths kMostAmount = kOne << 60U;
/// More digits than a quantity can have are no quantity.
constexpr size_t kMostDigits = 30;

struct Suffix {
  std::string_view text;
  Billionths unit;  ///< In billionths.
};

constexpr std::array kSuffixes = {
    Suffix{"", kOne},
    Suffix{"n", 1},
    Suffix{"u", 1'000},
    Suffix{"m", 1'000'000},
    Suffix{"k", kOne * 1'000},
    Suffix{"M", kOne * 1'000'000},
    Suffix{"G", kOne * 1'000'000'000},
    Suffix{"T", kOne * 1'000'000'000'000},
    Suffix{"P", kOne * 1'000'000'000'000'000},
    Suffix{"E", kOne * 1'000'000'000'000'000'000},
    Suffix{"Ki", kOne << 10U},
    Suffix{"Mi", kOne << 20U},
    Suffix{"Gi", kOne << 30U},
    Suffix{"Ti", kOne << 40U},
    Suffix{"Pi", kOne << 50U},
    Suffix{"Ei", kOne << 60U},
};

std::optional<Billionths> unit_of(std::string_view suffix) {
  const auto* found = std::find_if(kSuffixes.begin(), kSuffixes.end(),
                                   [&](const Suffix& known) { return known.text == suffix; });
  if (found != kSuffixes.end()) return found->unit;
  // An exponent: e3, E3.
  const bool is_exponent = suffix.size() == 2 || suffix.size() == 3;
  if (!is_exponent || (suffix[0] != 'e' && suffix[0] != 'E')) return {};
  int exponent = 0;
  for (const char digit : suffix.substr(1)) {
    if (digit < '0' || digit > '9') return {};
    exponent = exponent * 10 + (digit - '0');
  }
  if (exponent > 18) return {};
  Billionths unit = kOne;
  for (int i = 0; i < exponent; ++i) unit *= 10;
  return unit;
}

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

/// What a container asks of each resource: the request, else the limit.
void add_container(const Json& container, std::map<std::string, std::string>& asked) {
  const auto resources = container.find("resources");
  if (resources == container.end() || !resources->is_object()) return;
  for (const char* kind : {"limits", "requests"}) {
    const auto amounts = resources->find(kind);
    if (amounts == resources->end() || !amounts->is_object()) continue;
    for (const auto& [name, amount] : amounts->items())
      asked[name] = amount.is_string() ? amount.get<std::string>() : amount.dump();
  }
}

}  // namespace

std::optional<Billionths> parse_amount(std::string_view text) {
  size_t end = 0;
  while (end < text.size() && (is_digit(text[end]) || text[end] == '.')) ++end;
  const auto unit = unit_of(text.substr(end));
  if (!unit || end == 0 || end > kMostDigits) return {};
  Billionths amount = 0;
  Billionths place = *unit;
  bool is_fraction = false;
  for (const char letter : text.substr(0, end)) {
    if (letter == '.') {
      if (std::exchange(is_fraction, true)) return {};
    } else if (is_fraction) {
      place /= 10;
      amount += place * (letter - '0');
    } else {
      amount = amount * 10 + place * (letter - '0');
      if (amount > kMostAmount) return {};
    }
  }
  return amount;
}

std::string amount_text(Billionths amount) {
  constexpr std::array kShort = {Suffix{"", kOne}, Suffix{"m", 1'000'000}, Suffix{"u", 1'000},
                                 Suffix{"n", 1}};
  const auto* fits = std::find_if(kShort.begin(), kShort.end(),
                                  [&](const Suffix& unit) { return amount % unit.unit == 0; });
  std::string digits;
  for (Billionths rest = amount / fits->unit; rest > 0 || digits.empty(); rest /= 10)
    digits.push_back(static_cast<char>('0' + static_cast<int>(rest % 10)));
  std::reverse(digits.begin(), digits.end());
  return digits + std::string(fits->text);
}

void ResourceTotals::add(const Json& pod_template, int pods) {
  const Json::json_pointer place("/spec/containers");
  if (!pod_template.is_object() || !pod_template.contains(place)) return;
  for (const Json& container : pod_template[place]) {
    std::map<std::string, std::string> asked;
    if (container.is_object()) add_container(container, asked);
    for (const auto& [name, text] : asked) {
      if (const auto amount = parse_amount(text)) totals_[name] += *amount * pods;
    }
  }
}

Json ResourceTotals::to_json() const {
  Json amounts = Json::object();
  for (const auto& [name, amount] : totals_) amounts[name] = amount_text(amount);
  return amounts;
}

}  // namespace corro::kube
