#include <bit>
#include <cmath>
#include <limits>

#include "base/power_of_two.h"
#include "collective/schedule/patterns.h"
#include "collective/schedule/selection.h"

namespace corro::collective {
namespace {

/// Packing and unpacking in memory, for the algorithms that need it.
constexpr double kCopyUsPerByte = 1e-4;
/// From the mark of one rank to the next step of another one of its host; assumed.
constexpr double kHandOverUs = 2;
/// Many senders at once overflow a switch's buffers; assumed, not measured: from so many senders
/// and bytes a message on, receiving costs this much more.
constexpr double kIncastSenders = 16;
constexpr double kIncastBytes = 1 << 20;
constexpr double kIncastFactor = 1.25;

/// How many times the bytes that the closed forms count for a rank's own port pass the busiest
/// host's link, which all its ranks share.
class Crowding {
 public:
  explicit Crowding(const Topology* topology) {
    if (topology == nullptr || topology->hosts() == 1) return;
    const int32_t size = topology->size();
    for (int32_t host = 0; host < topology->hosts(); ++host) {
      const double ranks = topology->size_of(host);
      double leaving = 0;  // Ranks whose neighbour in a ring is elsewhere.
      for (const int32_t rank : topology->ranks_on(host))
        leaving += topology->host_of((rank + 1) % size) != host ? 1 : 0;
      pairs_ = std::fmax(pairs_, ranks * (size - ranks) / (size - 1));
      ring_ = std::fmax(ring_, leaving);
      trees_ = std::fmax(trees_, ranks);
    }
  }
  [[nodiscard]] double of(Algorithm algorithm, OpKind kind) const {
    const bool rooted = kind == OpKind::kBroadcast || kind == OpKind::kReduce ||
                        kind == OpKind::kGather || kind == OpKind::kScatter;
    switch (algorithm) {
      case Algorithm::kOneShot:
      case Algorithm::kTwoShot:
        return pairs_;
      case Algorithm::kDirect:
        return rooted ? 1 : pairs_;
      case Algorithm::kRing:
        return ring_;
      case Algorithm::kTwoLevel:
        return 1;
      default:
        return rooted ? 1 : trees_;
    }
  }

 private:
  double pairs_ = 1, ring_ = 1, trees_ = 1;
};

/// The link of a class as an algorithm finds it.
LinkModel crowded(const Problem& problem, Algorithm algorithm, const LinkModels& links) {
  const bool several = problem.topology != nullptr && problem.topology->hosts() > 1;
  LinkModel link = several ? links.other_host : links.same_host;
  link.us_per_byte *= Crowding(problem.topology).of(algorithm, problem.kind);
  return link;
}

/// The quantities of the closed forms.
class Costs {
 public:
  Costs(const Problem& problem, uint64_t element_bytes, const LinkModel& link)
      : problem_(problem),
        link_(link),
        ranks_(problem.size),
        levels_(log2_ceil(problem.size)),
        element_bytes_(static_cast<double>(element_bytes)),
        bytes_(static_cast<double>(problem.count) * element_bytes_) {
    if (problem.counts.empty()) {
      total_ = bytes_ * ranks_;
      largest_ = bytes_;
    } else {
      const Layout layout(problem.counts, 0, problem.size);
      total_ = static_cast<double>(layout.total()) * element_bytes_;
      largest_ = static_cast<double>(layout.largest()) * element_bytes_;
    }
  }

  [[nodiscard]] double of(Algorithm algorithm) const {
    switch (algorithm) {
      case Algorithm::kOneShot:
        return all_at_once(bytes_);
      case Algorithm::kTwoShot:
        return two_shot();
      case Algorithm::kRing:
        return ring();
      case Algorithm::kRecursiveDoubling:
        return active_levels() * message(bytes_) + extras_cost();
      case Algorithm::kRabenseifner:
        return 2 * active_levels() * message(0) +
               2 * (1 - 1 / active()) * bytes_ * link_.us_per_byte + extras_cost();
      case Algorithm::kBinomial:
        return binomial();
      case Algorithm::kDirect:
        return direct();
      case Algorithm::kBruck:
        return bruck();
      case Algorithm::kTwoLevel:
        return two_level();
      case Algorithm::kServed:
        return served();
    }
    return 0;
  }

 private:
  [[nodiscard]] double message(double bytes) const {
    return link_.latency_us + link_.overhead_us + bytes * link_.us_per_byte;
  }
  /// One message to, and one from, each of the others at once.
  [[nodiscard]] double all_at_once(double bytes_each) const {
    const double others = ranks_ - 1;
    if (others == 0) return 0;
    const bool incast = others >= kIncastSenders && bytes_each > kIncastBytes;
    return link_.latency_us + others * (link_.overhead_us + bytes_each * link_.us_per_byte *
                                                                (incast ? kIncastFactor : 1));
  }
  /// What a root of gather or scatter, or a rank of an allgather, passes on; its own block stays.
  [[nodiscard]] double total_of_others() const { return total_ * (1 - 1 / ranks_); }
  [[nodiscard]] double active() const { return PowerOfTwo(problem_.size).active; }
  [[nodiscard]] double active_levels() const { return std::log2(active()); }
  [[nodiscard]] double extras_cost() const {
    return PowerOfTwo(problem_.size).extras > 0 ? 2 * message(bytes_) : 0;
  }

  [[nodiscard]] double two_shot() const {
    if (problem_.kind == OpKind::kReducescatter) return all_at_once(largest_);
    return 2 * all_at_once(bytes_ / ranks_);
  }
  /// Contributors also tell each other that they begin, and how it went; and a result that is to be
  /// in the place of its input is copied there.
  [[nodiscard]] double served() const {
    const int32_t contributors = problem_.size - problem_.aggregators;
    const Shares shares(contributors, problem_.aggregators);
    const double share = bytes_ == 0 ? 0
                                     : static_cast<double>(shares.of(0, problem_.count).count) *
                                           element_bytes_ / bytes_;
    const bool incast = contributors >= kIncastSenders && share * bytes_ > kIncastBytes;
    return 3 * (link_.latency_us + (ranks_ - 1) * link_.overhead_us) +
           bytes_ * (1 + share * (contributors - 2)) * link_.us_per_byte *
               (incast ? kIncastFactor : 1) +
           bytes_ * kCopyUsPerByte;
  }
  [[nodiscard]] double ring() const {
    const double others = ranks_ - 1;
    switch (problem_.kind) {
      case OpKind::kAllreduce:
        return 2 * others * message(bytes_ / ranks_);
      case OpKind::kBroadcast:
        return chain(others);
      default:
        return others * message(largest_);
    }
  }
  [[nodiscard]] double binomial() const {
    switch (problem_.kind) {
      case OpKind::kBarrier:
        return levels_ * message(0);
      case OpKind::kGather:
      case OpKind::kScatter:
        return levels_ * message(0) + total_of_others() * (link_.us_per_byte + kCopyUsPerByte);
      default:
        return levels_ * message(bytes_);
    }
  }
  [[nodiscard]] double direct() const {
    switch (problem_.kind) {
      case OpKind::kBarrier:
        return all_at_once(0);
      case OpKind::kGather:
      case OpKind::kScatter:
      case OpKind::kAllgather:
        return all_at_once(0) + total_of_others() * link_.us_per_byte;
      default:
        return all_at_once(bytes_);
    }
  }
  [[nodiscard]] double bruck() const {
    if (problem_.kind == OpKind::kAllgather) {
      return levels_ * message(0) + total_of_others() * link_.us_per_byte +
             2 * total_ * kCopyUsPerByte;
    }
    double moved = 0;  // block i moves once for each bit of i
    for (int32_t i = 0; i < problem_.size; ++i) {
      moved += bytes_ * std::popcount(static_cast<uint32_t>(i));
    }
    return levels_ * message(0) + moved * (link_.us_per_byte + kCopyUsPerByte) +
           total_ * kCopyUsPerByte;
  }

  /// Bytes through the busiest host's link, one way, where every rank has blocks of its own.
  [[nodiscard]] double host_blocks(bool pairs) const {
    const Topology& topology = *problem_.topology;
    const Layout layout(problem_.counts, problem_.count, problem_.size);
    double most = 0;
    for (int32_t host = 0; host < topology.hosts(); ++host) {
      double own = 0;
      for (const int32_t rank : topology.ranks_on(host))
        own += static_cast<double>(layout.count(rank)) * element_bytes_;
      const double others = total_ - own;
      most = std::fmax(most, pairs ? others * topology.size_of(host)
                                   : std::fmax(others, own * (topology.hosts() - 1)));
    }
    return most;
  }
  /// Bytes over a link while as many as `copied` are copied or folded inside the host.
  [[nodiscard]] double overlapped(double bytes, double copied) const {
    return std::fmax(bytes * link_.us_per_byte, copied * kCopyUsPerByte);
  }
  [[nodiscard]] double two_level() const {
    const double others = problem_.topology->hosts() - 1;
    const double exchange = link_.latency_us + others * link_.overhead_us;
    switch (problem_.kind) {
      case OpKind::kAllreduce:
        return 2 * exchange + 3 * kHandOverUs +
               overlapped(2 * others / (others + 1) * bytes_, 3 * bytes_);
      case OpKind::kReducescatter:
      case OpKind::kAllgather:
        return exchange + 2 * kHandOverUs + overlapped(host_blocks(false), 2 * total_);
      case OpKind::kAlltoall:
        return exchange + 2 * kHandOverUs + overlapped(host_blocks(true), 4 * total_);
      case OpKind::kBarrier:
        return exchange + 2 * kHandOverUs;
      default:
        return chain(others) + 3 * kHandOverUs;
    }
  }
  /// A pipeline of chunks over so many links in a row.
  [[nodiscard]] double chain(double links) const {
    const double chunks = problem_.chunk_count == 0
                              ? 1
                              : std::fmax(1, std::ceil(static_cast<double>(problem_.count) /
                                                       static_cast<double>(problem_.chunk_count)));
    const double chunk = bytes_ / chunks;
    return links * message(chunk) + (chunks - 1) * (link_.overhead_us + chunk * link_.us_per_byte);
  }

  const Problem& problem_;
  const LinkModel link_;
  double ranks_, levels_, element_bytes_, bytes_;
  double total_ = 0, largest_ = 0;
};

}  // namespace

AlgorithmCosts modelled_costs_us(const Problem& problem, uint64_t element_bytes,
                                 const LinkModels& links) {
  AlgorithmCosts us{};
  for (size_t i = 0; i < us.size(); ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    us[i] = supports(algorithm, problem)
                ? Costs(problem, element_bytes, crowded(problem, algorithm, links)).of(algorithm)
                : std::numeric_limits<double>::infinity();
  }
  return us;
}

}  // namespace corro::collective
