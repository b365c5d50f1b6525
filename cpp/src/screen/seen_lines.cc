#include "screen/seen_lines.h"

#include <algorithm>
#include <utility>

namespace corro::screen {
namespace {

constexpr size_t kLineBytes = sizeof(SeenLine) + 48;  ///< With its places in the containers.

size_t bytes_of(const SeenLine& line) {
  return kLineBytes + line.others.capacity() * sizeof(SeenLine::Count);
}

}  // namespace

uint32_t SeenLines::find_or_add(uint64_t key) {
  while (bytes_ > max_bytes_ && !order_.empty()) forget_oldest();
  if (4 * (size() + 1) > 3 * table_.size()) grow();
  Place& found = table_[find(key)];
  if (found.number == 0) found = {.hash = static_cast<uint32_t>(key), .number = add(key) + 1};
  return found.number - 1;
}

/// The place that has the line, or the free one where it belongs.
size_t SeenLines::find(uint64_t key) const {
  const auto hash = static_cast<uint32_t>(key);
  size_t at = home_of(hash);
  while (table_[at].number != 0) {
    if (table_[at].hash == hash && lines_[table_[at].number - 1].key == key) break;
    at = next(at);
  }
  return at;
}

uint32_t SeenLines::add(uint64_t key) {
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(lines_.size()));
    lines_.emplace_back();
  }
  const uint32_t number = free_.front();
  free_.pop_front();
  lines_[number] = {.key = key, .first = {}, .others = {}};
  bytes_ += bytes_of(lines_[number]);
  list(number);
  return number;
}

void SeenLines::grow() {
  for (const Place& place : std::exchange(table_, std::vector<Place>(2 * table_.size()))) {
    if (place.number == 0) continue;
    size_t at = home_of(place.hash);
    while (table_[at].number != 0) at = next(at);
    table_[at] = place;
  }
}

uint32_t SeenLines::count(uint32_t number, int rank) {
  SeenLine& line = lines_[number];
  if (line.first.printed == 0) line.first.rank = rank;
  if (line.first.rank == rank) return ++line.first.printed;
  const auto at = std::ranges::lower_bound(line.others, rank, {}, &SeenLine::Count::rank);
  if (at != line.others.end() && at->rank == rank) return ++at->printed;
  bytes_ -= bytes_of(line);
  line.others.insert(at, {.rank = rank, .printed = 1});
  bytes_ += bytes_of(line);
  return 1;
}

void SeenLines::release(uint32_t number) {
  lines_[number].waiting = false;
  list(number);
}

void SeenLines::list(uint32_t number) {
  if (!std::exchange(lines_[number].listed, true)) order_.push_back(number);
}

/// A line that waits is kept, and comes back into the order when it is released.
void SeenLines::forget_oldest() {
  const uint32_t number = order_.front();
  order_.pop_front();
  SeenLine& line = lines_[number];
  line.listed = false;
  if (line.waiting) return;
  free_place(find(line.key));
  bytes_ -= bytes_of(line);
  line.others = {};
  free_.push_back(number);
}

/// Moves back whoever stands behind and would no longer be found.
void SeenLines::free_place(size_t place) {
  for (size_t at = next(place); table_[at].number != 0; at = next(at)) {
    const size_t home = home_of(table_[at].hash);
    const size_t mask = table_.size() - 1;
    if (((at - home) & mask) < ((at - place) & mask)) continue;
    table_[place] = table_[at];
    place = at;
  }
  table_[place] = {};
}

}  // namespace corro::screen
