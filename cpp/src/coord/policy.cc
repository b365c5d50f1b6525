#include "coord/policy.h"

#include <fmt/format.h>

#include <algorithm>

namespace corro::coord {
namespace {

std::string text_of(Duration span) {
  using Seconds = std::chrono::duration<double>;
  return fmt::format("{:g} s", std::chrono::duration_cast<Seconds>(span).count());
}

Wait wait_for_replacement(Duration span) {
  if (span == Duration::zero()) return {};
  return {.span = span, .why = fmt::format("others may come in their place for {}", text_of(span))};
}

Wait wait_for_joiners(const Growth& growth, Duration span) {
  if (growth.coming < 2) return {.span = span};
  return {.span = span,
          .why = fmt::format("{} ranks may join together within {}", growth.coming, text_of(span))};
}

Wait back_off(const Failure& failure, const PolicyOptions& options) {
  constexpr int kMostDoublings = 20;
  if (failure.failures < 2) return {};
  const int doublings = std::min(failure.failures - 2, kMostDoublings);
  const Duration span =
      std::min<Duration>(options.back_off * (int64_t{1} << doublings), options.most_back_off);
  return {.span = span,
          .why = fmt::format("{} failures in a row: nothing is started in this slot for {}",
                             failure.failures, text_of(span))};
}

Verdict judge(const Cut& cut) {
  const auto worst = std::ranges::max_element(cut.sides, [](const auto& a, const auto& b) {
    if (a.accusers != b.accusers) return a.accusers < b.accusers;
    if (a.members.size() != b.members.size()) return a.members.size() > b.members.size();
    return a.members.front() < b.members.front();
  });
  return {.side = static_cast<size_t>(worst - cut.sides.begin())};
}

}  // namespace

Policy standard_policy(const PolicyOptions& options) {
  return {
      .replace = [options](const Loss&) { return wait_for_replacement(options.replacement); },
      .gather =
          [options](const Growth& growth) { return wait_for_joiners(growth, options.gather); },
      .quarantine = [options](const Failure& failure) { return back_off(failure, options); },
      .fence = judge,
  };
}

}  // namespace corro::coord
