#include "launch/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>

#include "io/files.h"

namespace corro::launch {
namespace {

constexpr int kMaxSlots = 1024;

Status wrong(std::string_view what, const std::string& why) {
  return {Code::kInvalidArgument, fmt::format("{}: {}", what, why)};
}

Result<int> parse_slots(std::string_view text, std::string_view what) {
  int slots = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  const bool number = error == std::errc() && stop == text.data() + text.size();
  if (number && slots >= 1 && slots <= kMaxSlots) return slots;
  return wrong(what, fmt::format("slots are 1 to {}, as in: node7:4", kMaxSlots));
}

/// "node7", "node7:4", "[fe80::1]:4" and, with two colons or more, an IPv6 address.
Result<HostSlots> parse_host(std::string_view text) {
  HostSlots host;
  std::string_view slots;
  const size_t bracket = text.rfind(']');
  const size_t colon = text.rfind(':');
  const bool bare_address = bracket == std::string_view::npos && std::ranges::count(text, ':') > 1;
  if (colon != std::string_view::npos && !bare_address &&
      (bracket == std::string_view::npos || colon > bracket)) {
    slots = text.substr(colon + 1);
    host.name = text.substr(0, colon);
    CORRO_ASSIGN(host.slots, parse_slots(slots, text));
  } else {
    host.name = text;
  }
  std::erase_if(host.name, [](char c) { return c == '[' || c == ']'; });
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("-_.:@%").find(static_cast<char>(c)) != std::string_view::npos;
  };
  const bool plain = std::ranges::all_of(host.name, is_plain);
  if (host.name.empty() || !plain || host.name[0] == '-')
    return wrong(text.empty() ? "''" : text, "not a host, as in: node7:4");
  return host;
}

Status check_twice(const std::vector<HostSlots>& hosts, const std::string& name) {
  if (std::ranges::find(hosts, name, &HostSlots::name) == hosts.end()) return {};
  return wrong(name, "is there twice; write it once, with all its slots");
}

/// A line of a hostfile.
struct HostLine {
  HostSlots host;
  bool says_slots = false;
};

/// What stands behind the host in a hostfile's line.
Status read_words(std::istringstream& words, HostLine& line) {
  std::string word;
  while (words >> word) {
    const size_t equals = word.find('=');
    const std::string key = word.substr(0, equals);
    if (equals == std::string::npos || (key != "slots" && key != "max_slots" && key != "max-slots"))
      return wrong(word, "not understood; write: node7 slots=4");
    CORRO_ASSIGN(const int slots, parse_slots(word.substr(equals + 1), word));
    if (key == "slots") line.host.slots = slots;
    line.says_slots = true;
  }
  return {};
}

/// "slots = 4" as "slots=4".
std::string join_assignments(const std::string& line) {
  constexpr const char* kBlanks = " \t\r";
  std::string joined;
  for (size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '=') {
      joined.erase(joined.find_last_not_of(kBlanks) + 1);
      at = std::min(line.find_first_not_of(kBlanks, at + 1), line.size()) - 1;
      joined += '=';
    } else {
      joined += line[at];
    }
  }
  return joined;
}

Result<std::optional<HostLine>> parse_line(const std::string& text) {
  std::istringstream words(join_assignments(text.substr(0, text.find('#'))));
  std::string first;
  if (!(words >> first)) return std::optional<HostLine>();
  HostLine line;
  CORRO_ASSIGN(line.host, parse_host(first));
  // An IPv6 address alone is written without brackets.
  line.says_slots = line.host.name.size() != first.size() && first.back() != ']';
  CORRO_TRY(read_words(words, line));
  return std::optional(std::move(line));
}

/// Schedulers write a host once for each of its slots. Two lines of which one says the slots are a
/// mistake.
Status add_line(HostLine line, std::vector<HostLine>& lines) {
  const auto named = [&](const HostLine& other) { return other.host.name == line.host.name; };
  const auto there = std::ranges::find_if(lines, named);
  if (there == lines.end()) {
    lines.push_back(std::move(line));
    return {};
  }
  if (there->says_slots || line.says_slots)
    return wrong(line.host.name, "is there twice; write it once, with all its slots");
  if (++there->host.slots <= kMaxSlots) return {};
  return wrong(line.host.name, fmt::format("is there more than {} times", kMaxSlots));
}

}  // namespace

Result<std::vector<HostSlots>> parse_hosts(std::string_view text) {
  std::vector<HostSlots> hosts;
  while (true) {
    const size_t comma = text.find(',');
    auto host = parse_host(text.substr(0, comma));
    if (!host.ok()) return host.status().with_context("-H");
    CORRO_TRY(check_twice(hosts, host->name).with_context("-H"));
    hosts.push_back(std::move(*host));
    if (comma == std::string_view::npos) return hosts;
    text.remove_prefix(comma + 1);
  }
}

Result<std::vector<HostSlots>> parse_hostfile(std::string_view text, const std::string& path) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<HostLine> read;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::string where = fmt::format("{}:{}", path, number);
    auto host = parse_line(line);
    if (!host.ok()) return host.status().with_context(where);
    if (*host) CORRO_TRY(add_line(std::move(**host), read).with_context(where));
  }
  std::vector<HostSlots> hosts;
  for (HostLine& each : read) hosts.push_back(std::move(each.host));
  if (hosts.empty()) return wrong(path, "has no host; write a line for each: node7 slots=4");
  return hosts;
}

Result<std::string> read_hostfile(const std::string& path) {
  constexpr size_t kMost = size_t{16} << 20U;
  return io::read_file(path, kMost);
}

Result<std::vector<HostSlots>> read_hosts(const std::string& hosts, const std::string& hostfile,
                                          const TextReader& read_text) {
  if (!hosts.empty() && !hostfile.empty()) return wrong("-H and --hostfile", "give one of them");
  if (hostfile.empty()) return parse_hosts(hosts);
  const auto text = read_text(hostfile);
  if (!text.ok()) {
    const bool missing = text.status().code() == Code::kNotFound;
    return Status(text.status().code(),
                  fmt::format("--hostfile {}: {}", hostfile,
                              missing ? "no such file" : text.status().message()));
  }
  return parse_hostfile(*text, hostfile);
}

Result<std::vector<HostSlots>> place_ranks(std::vector<HostSlots> hosts, int ranks,
                                           const std::string& option) {
  int slots = 0;
  for (const HostSlots& host : hosts) slots += host.slots;
  if (ranks > slots) {
    return wrong(fmt::format("{} {}", option, ranks),
                 fmt::format("the hosts have {} slots; give them more, as in: -H {}:{}", slots,
                             hosts[0].name, hosts[0].slots + ranks - slots));
  }
  int left = ranks == 0 ? slots : ranks;
  for (HostSlots& host : hosts) left -= host.slots = std::min(host.slots, left);
  std::erase_if(hosts, [](const HostSlots& host) { return host.slots == 0; });
  return hosts;
}

bool is_own_host(const std::string& name, const std::string& own) {
  return name == "localhost" || name == "127.0.0.1" || name == "::1" || name == own ||
         name == own.substr(0, own.find('.'));
}

std::vector<HostSlots> under_one_name(std::vector<HostSlots> hosts, const std::string& own) {
  const auto is_own = [&](const HostSlots& host) { return is_own_host(host.name, own); };
  const auto first = std::ranges::find_if(hosts, is_own);
  if (first == hosts.end()) return hosts;
  for (auto host = first + 1; host != hosts.end(); ++host) {
    if (is_own(*host)) first->slots += host->slots;
  }
  hosts.erase(std::remove_if(first + 1, hosts.end(), is_own), hosts.end());
  return hosts;
}

}  // namespace corro::launch
