// HostSteps: what the two-level algorithms write their steps with. Steps inside a host go by way
// of the stages that its ranks share, steps among hosts are messages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "collective/schedule/builder.h"
#include "collective/schedule/topology.h"

namespace corro::collective {

/// Strands in flight. More than in a flat pipeline, since each passes the link twice and waits for
/// several processes in between (measured: 4 leave a link of 1 Gbit/s idle for a tenth of the
/// time).
inline constexpr uint32_t kHostWindow = 8;

/// A rank's share is no smaller than a chunk divided by this: one message of 4 KiB costs less than
/// four of 1 KiB that four processes wait for.
inline constexpr uint64_t kLeastShares = 64;

/// What two ranges have in common.
[[nodiscard]] constexpr Range overlap(Range a, Range b) {
  const uint64_t begin = std::max(a.begin, b.begin);
  const uint64_t end = std::min(a.begin + a.count, b.begin + b.count);
  return {begin, end > begin ? end - begin : 0};
}
/// The same elements, counted from `origin`.
[[nodiscard]] constexpr Range from_origin(Range range, uint64_t origin) {
  return {range.begin - origin, range.count};
}

/// As one rank sees it. Strands begin with open(); rounds then count from 1.
class HostSteps : public Builder {
 public:
  /// `stage`: elements of each rank's stage that a strand uses.
  HostSteps(const Problem& problem, uint32_t strands, uint32_t rounds, uint64_t stage)
      : Builder(strands, rounds, kHostWindow),
        topology_(*problem.topology),
        rank_(problem.rank),
        host_(topology_.host_of(rank_)),
        least_share_(std::max<uint64_t>(problem.chunk_count / kLeastShares, 1)) {
    reserve_stage(stage);
  }

  [[nodiscard]] int32_t rank() const { return rank_; }
  [[nodiscard]] int32_t host() const { return host_; }
  [[nodiscard]] int32_t hosts() const { return topology_.hosts(); }
  [[nodiscard]] std::span<const int32_t> neighbours() const { return topology_.ranks_on(host_); }
  [[nodiscard]] bool alone() const { return neighbours().size() == 1; }

  /// The part of `whole` that a rank drives for its host: as even as its ranks allow, but of little
  /// the first ranks drive all.
  [[nodiscard]] Range share_of(int32_t rank, Range whole) const {
    const auto ranks = static_cast<uint64_t>(topology_.size_of(topology_.host_of(rank)));
    const auto place = static_cast<uint64_t>(topology_.place_of(rank));
    const uint64_t drivers = std::clamp<uint64_t>(whole.count / least_share_, 1, ranks);
    return place < drivers ? slice(whole, drivers, place) : Range{whole.begin, 0};
  }
  [[nodiscard]] Range own_share(Range whole) const { return share_of(rank_, whole); }

  /// The strand's place in the stages is free once everyone here has taken what was there before.
  void open(uint32_t strand) {
    at(strand, 0);
    if (strand >= window()) await_others(Mark::kTaken, strand + 1 - window());
  }
  void begin_round(uint32_t round) { at(strand(), round); }
  void await_others(Mark mark) { await_others(mark, strand() + 1); }
  /// Says that the own stage is filled, and waits until all of this host are.
  void fill() {
    mark(Mark::kFilled);
    await_others(Mark::kFilled);
  }
  /// The same for results that this rank hands out.
  void hand_out() {
    mark(Mark::kMade);
    await_others(Mark::kMade);
  }

  [[nodiscard]] Block own_stage(Range range) const { return stage(rank_, range); }
  /// Own stage = what the stages of all ranks of this host hold there, folded in rank order. Only
  /// for a range that no other rank reads.
  void fold_inside(Range range) {
    if (range.count == 0 || alone()) return;
    sources_.clear();
    for (const int32_t neighbour : neighbours()) sources_.push_back(stage(neighbour, range));
    fold(own_stage(range), sources_, false);
  }

  /// Reserves scratch for sums of up to `longest` elements, one from each other host in a strand.
  void reserve_sums(uint64_t longest) {
    longest_sum_ = longest;
    sums_ = scratch_per_strand(longest * static_cast<uint64_t>(hosts() - 1));
  }
  /// Where the other host's sum of `count` elements arrives.
  [[nodiscard]] Block sum_from(int32_t host, uint64_t count) const {
    const auto others_before = static_cast<uint64_t>(host < host_ ? host : host - 1);
    return part(slot(sums_, strand()), others_before * longest_sum_, count);
  }
  /// into = the sums of all hosts in host order. This host's is `own` of the own stage.
  void fold_over_hosts(Range own, Block into) {
    sources_.clear();
    for (int32_t host = 0; host < hosts(); ++host)
      sources_.push_back(host == host_ ? own_stage(own) : sum_from(host, own.count));
    fold(into, sources_, true);
  }
  /// Copies what the ranks of this host hand out, each its share of `whole`, to the output's
  /// elements from `at` on.
  void take_shares(Range whole, uint64_t at) {
    for (const int32_t owner : neighbours()) {
      const Range range = share_of(owner, whole);
      if (range.count > 0) copy(stage(owner, range), output({at + range.begin, range.count}));
    }
  }

  /// Calls `use(rank, part)` for each rank of a host and the part of `range` that it drives of
  /// `whole`; not for nothing.
  template <typename Use>
  void for_each_part(int32_t host, Range whole, Range range, const Use& use) const {
    for (const int32_t rank : topology_.ranks_on(host)) {
      const Range part = overlap(share_of(rank, whole), range);
      if (part.count > 0) use(rank, part);
    }
  }
  /// Calls `use(host)` for each other host, the next one first, so that not all begin with one.
  template <typename Use>
  void for_each_other_host(const Use& use) const {
    for (int32_t i = 1; i < hosts(); ++i) use((host_ + i) % hosts());
  }

 private:
  void await_others(Mark mark, uint32_t strands) {
    for (const int32_t neighbour : neighbours())
      if (neighbour != rank_) await(neighbour, mark, strands);
  }

  const Topology& topology_;
  const int32_t rank_, host_;
  const uint64_t least_share_;
  uint64_t longest_sum_ = 0;
  Block sums_;  ///< Of the other hosts, in host order.
  std::vector<Block> sources_;
};

}  // namespace corro::collective
