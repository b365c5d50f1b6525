#include "diagnosis/stacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <sstream>

#include "diagnosis/report.h"

namespace corro::diagnosis {
namespace {

constexpr size_t kWidth = 400;  ///< Of a line: names are foreign.

/// Begins a thread: faulthandler's `Current thread 0x7f (most recent call first):`, py-spy's
/// `Thread 12 (idle): "MainThread"`.
bool begins_thread(std::string_view line) {
  return line.starts_with("Thread ") || line.starts_with("Current thread ");
}

bool is_main(std::string_view line) {
  return line.starts_with("Current thread ") || line.ends_with("\"MainThread\"");
}

/// Reads py-spy's `    main (train.py:12)`.
std::optional<Frame> parse_spied_frame(std::string_view line) {
  constexpr std::string_view kMargin = "    ";
  if (!line.starts_with(kMargin) || !line.ends_with(')')) return std::nullopt;
  line.remove_prefix(kMargin.size());
  line.remove_suffix(1);
  const size_t place = line.find(" (");
  const size_t colon = line.rfind(':');
  if (place == std::string_view::npos) return std::nullopt;
  Frame frame;
  frame.function = line.substr(0, place);
  const bool has_line = colon != std::string_view::npos && colon > place;
  frame.file = line.substr(place + 2, has_line ? colon - place - 2 : std::string_view::npos);
  if (has_line) std::from_chars(line.data() + colon + 1, line.data() + line.size(), frame.line);
  return frame;
}

std::string describe_frames(const std::vector<Frame>& frames) {
  std::string text;
  for (const Frame& frame : frames) {
    const std::string place = fmt::format("{}:{} in {}", frame.file, frame.line, frame.function);
    text += fmt::format("    {}\n", fit(place, kWidth));
  }
  return text.empty() ? "    no Python code\n" : text;
}

/// What a rank's threads do, its main thread first, equal ones once.
std::string describe_threads(const std::vector<ThreadStack>& threads) {
  std::string text;
  std::map<std::string, int> others;  // So their order is that of the text, on all ranks.
  for (const ThreadStack& thread : threads) {
    if (thread.main) {
      text += "  main thread\n" + describe_frames(thread.frames);
    } else {
      ++others[describe_frames(thread.frames)];
    }
  }
  for (const auto& [frames, count] : others)
    text += (count == 1 ? "  thread\n" : fmt::format("  {} threads\n", count)) + frames;
  return text;
}

/// " on a, b"
std::string describe_hosts(const std::vector<const RankStacks*>& ranks) {
  std::vector<std::string> hosts;
  for (const RankStacks* rank : ranks) {
    if (!rank->host.empty() && std::ranges::find(hosts, rank->host) == hosts.end())
      hosts.push_back(rank->host);
  }
  return hosts.empty() ? "" : fmt::format(" on {}", fmt::join(hosts, ", "));
}

}  // namespace

std::vector<ThreadStack> parse_stacks(std::string_view text) {
  std::vector<ThreadStack> threads;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (begins_thread(line)) threads.push_back({.main = is_main(line), .frames = {}});
    if (threads.empty()) continue;
    auto frame = parse_frame(line);
    if (!frame) frame = parse_spied_frame(line);
    if (frame) threads.back().frames.push_back(std::move(*frame));
  }
  return threads;
}

std::string format_stacks(std::span<const RankStacks> ranks) {
  std::vector<std::pair<std::string, std::vector<const RankStacks*>>> alike;
  for (const RankStacks& rank : ranks) {
    const auto threads = parse_stacks(rank.text);
    const std::string does = threads.empty() ? fit(": " + rank.missing, kWidth) + "\n"
                                             : "\n" + describe_threads(threads);
    const auto same = std::ranges::find(alike, does, [](const auto& one) { return one.first; });
    if (same == alike.end()) {
      alike.push_back({does, {&rank}});
    } else {
      same->second.push_back(&rank);
    }
  }
  std::string text;
  for (const auto& [does, who] : alike) {
    std::vector<int> numbers;
    for (const RankStacks* rank : who) numbers.push_back(rank->rank);
    text += format_ranks(numbers) + describe_hosts(who) + does;
  }
  return text;
}

}  // namespace corro::diagnosis
