#include "plan/partition/ideals.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

namespace corro::plan {
namespace {

constexpr size_t kMostIdeals = 500'000;
constexpr size_t kMostWords = size_t{1} << 25U;  // 256 MiB.

/// The ideals found so far as sets of bits, all in one array, and a hash table to find them again.
class IdealSets {
 public:
  explicit IdealSets(size_t nodes) : words_((nodes + 63) / 64), table_(1024, kNone) {
    bits_.resize(words_, 0);
    count_ = 1;
    table_[hash_of(bits_.data()) & (table_.size() - 1)] = 0;
  }

  [[nodiscard]] IdealId count() const { return count_; }
  [[nodiscard]] size_t words() const { return words_; }
  [[nodiscard]] std::vector<uint64_t> take_bits() { return std::move(bits_); }
  [[nodiscard]] bool too_many() const { return count_ > kMostIdeals || bits_.size() > kMostWords; }
  [[nodiscard]] bool holds(IdealId ideal, uint32_t node) const {
    return (bits_[ideal * words_ + node / 64] >> (node % 64) & 1U) != 0;
  }

  /// The ideal that has `node` too, found or made.
  IdealId with(IdealId ideal, uint32_t node) {
    const size_t at = count_ * words_;
    bits_.resize(at + words_);
    std::copy_n(bits_.begin() + static_cast<ptrdiff_t>(ideal * words_), words_,
                bits_.begin() + static_cast<ptrdiff_t>(at));
    bits_[at + node / 64] |= uint64_t{1} << (node % 64);
    size_t slot = hash_of(&bits_[at]) & (table_.size() - 1);
    for (; table_[slot] != kNone; slot = (slot + 1) & (table_.size() - 1)) {
      if (std::equal(&bits_[at], &bits_[at] + words_, &bits_[table_[slot] * words_])) {
        bits_.resize(at);
        return table_[slot];
      }
    }
    table_[slot] = count_++;
    if (count_ * size_t{2} > table_.size()) grow();
    return count_ - 1;
  }

 private:
  static constexpr IdealId kNone = UINT32_MAX;

  [[nodiscard]] size_t hash_of(const uint64_t* words) const {
    uint64_t hash = 0;
    for (size_t i = 0; i < words_; ++i) {
      hash = (hash ^ words[i]) * 0x9E3779B97F4A7C15U;
      hash ^= hash >> 32U;
    }
    return hash;
  }

  void grow() {
    table_.assign(table_.size() * 2, kNone);
    for (IdealId ideal = 0; ideal < count_; ++ideal) {
      size_t slot = hash_of(&bits_[ideal * words_]) & (table_.size() - 1);
      while (table_[slot] != kNone) slot = (slot + 1) & (table_.size() - 1);
      table_[slot] = ideal;
    }
  }

  size_t words_;
  IdealId count_ = 0;
  std::vector<uint64_t> bits_;
  std::vector<IdealId> table_;
};

struct UpLink {
  IdealId above;
  Ideals::Link link;
};

}  // namespace

Result<Ideals> Ideals::create(const std::vector<std::vector<uint32_t>>& predecessors) {
  const auto nodes = static_cast<uint32_t>(predecessors.size());
  IdealSets sets(nodes);
  std::vector<UpLink> found;
  // Each ideal makes those with one node more: sizes, and so numbers, only rise.
  for (IdealId ideal = 0; ideal < sets.count(); ++ideal) {
    for (uint32_t node = 0; node < nodes; ++node) {
      if (sets.holds(ideal, node)) continue;
      const bool complete = std::ranges::all_of(
          predecessors[node], [&](uint32_t before) { return sets.holds(ideal, before); });
      if (complete) found.push_back({sets.with(ideal, node), {node, ideal}});
    }
    if (sets.too_many()) {
      return Status(Code::kResourceExhausted,
                    fmt::format("the graph can be cut in more than {} ways", sets.count() - 1));
    }
  }
  Ideals ideals;
  ideals.begin_.assign(sets.count() + size_t{1}, 0);
  for (const UpLink& up : found) ++ideals.begin_[up.above + size_t{1}];
  for (size_t i = 1; i < ideals.begin_.size(); ++i) ideals.begin_[i] += ideals.begin_[i - 1];
  ideals.links_.resize(found.size());
  auto next = ideals.begin_;
  for (const UpLink& up : found) ideals.links_[next[up.above]++] = up.link;
  for (IdealId ideal = 0; ideal < ideals.count(); ++ideal) {
    std::sort(ideals.links_.begin() + static_cast<ptrdiff_t>(ideals.begin_[ideal]),
              ideals.links_.begin() + static_cast<ptrdiff_t>(ideals.begin_[ideal + size_t{1}]),
              [](const Link& a, const Link& b) { return a.node > b.node; });
  }
  ideals.words_ = sets.words();
  ideals.bits_ = sets.take_bits();
  return ideals;
}

}  // namespace corro::plan
