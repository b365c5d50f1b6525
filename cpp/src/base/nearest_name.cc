#include "base/nearest_name.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace corro {
namespace {

constexpr size_t kMostEdits = 2;
constexpr size_t kLeastBeginning = 3;

/// Letters to insert, delete or replace (Wagner and Fischer 1974, with one row of the table).
size_t edits_between(const std::string& from, const std::string& to) {
  std::vector<size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < from.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < to.size(); ++j) {
      const size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest_name(const std::string& name, const std::set<std::string>& known) {
  std::string nearest;
  size_t least = std::min(kMostEdits, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const size_t edits = edits_between(name, candidate);
    if (edits >= least) continue;
    least = edits;
    nearest = candidate;
  }
  return nearest;
}

std::string completed_or_nearest_name(const std::string& name, const std::set<std::string>& known) {
  if (name.size() < kLeastBeginning) return nearest_name(name, known);
  std::string shortest;
  for (const std::string& candidate : known) {
    if (!candidate.starts_with(name)) continue;
    if (shortest.empty() || candidate.size() < shortest.size()) shortest = candidate;
  }
  return shortest.empty() ? nearest_name(name, known) : shortest;
}

}  // namespace corro
