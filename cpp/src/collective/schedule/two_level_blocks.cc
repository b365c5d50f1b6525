// Two-level: operations on a block for each rank, or for each pair. A strand is a piece of every
// block. Blocks of the ranks of one host lie one after the other in a stage, host by host, so that
// what a host sends to another is one run, of which each of its ranks drives a share.
#include "collective/schedule/algorithms.h"
#include "collective/schedule/host_steps.h"

namespace corro::collective {
namespace {

/// Where the pieces of all blocks lie when they are sorted by host.
class SortedPieces {
 public:
  SortedPieces(const Topology& topology, const Layout& layout, uint32_t strands, uint32_t strand)
      : places_(static_cast<size_t>(topology.size())) {
    for (int32_t host = 0; host < topology.hosts(); ++host) {
      const uint64_t begin = total_;
      for (const int32_t rank : topology.ranks_on(host)) {
        const uint64_t count = slice(layout.count(rank), strands, strand).count;
        places_[static_cast<size_t>(rank)] = {total_, count};
        total_ += count;
      }
      runs_.push_back({begin, total_ - begin});
    }
  }
  [[nodiscard]] Range of_rank(int32_t rank) const { return places_[static_cast<size_t>(rank)]; }
  [[nodiscard]] Range of_host(int32_t host) const { return runs_[static_cast<size_t>(host)]; }
  [[nodiscard]] uint64_t total() const { return total_; }

 private:
  std::vector<Range> places_;  ///< By rank.
  std::vector<Range> runs_;    ///< By host.
  uint64_t total_ = 0;
};

/// So many strands that the pieces of all blocks together are no longer than a chunk.
uint32_t strands_of(const Problem& problem, const Layout& layout) {
  Problem of_block = problem;
  if (problem.chunk_count > 0) {
    of_block.chunk_count =
        std::max<uint64_t>(problem.chunk_count / static_cast<uint64_t>(problem.size), 1);
  }
  return strands_for(of_block, layout.largest());
}

class Blocks {
 public:
  Blocks(const Problem& problem, uint32_t rounds)
      : problem_(problem),
        layout_(problem.counts, problem.count, problem.size),
        strands_(strands_of(problem, layout_)),
        steps_(problem, strands_, rounds, sorted(0).total()) {}

 protected:
  [[nodiscard]] SortedPieces sorted(uint32_t strand) const {
    return {*problem_.topology, layout_, strands_, strand};
  }
  /// Where the piece of a rank's block lies in a buffer that holds all blocks.
  [[nodiscard]] Range piece_of(int32_t rank, uint32_t strand) const {
    return slice(layout_.block(rank), strands_, strand);
  }

  const Problem& problem_;
  const Layout layout_;
  const uint32_t strands_;
  HostSteps steps_;
};

/// Every rank sends its block to each other host once, shared out among the ranks there, and all
/// take it from their stages. Link of a host: the blocks of its ranks H-1 times out, all others
/// once in, in 1 step.
class Allgather : Blocks {
 public:
  explicit Allgather(const Problem& problem) : Blocks(problem, 5) {
    for (uint32_t strand = 0; strand < strands_; ++strand) add(strand);
  }
  [[nodiscard]] Schedule take() { return steps_.take(); }

 private:
  void add(uint32_t strand) {
    const SortedPieces sorted = this->sorted(strand);
    const Range own = sorted.of_rank(steps_.rank());
    const Range own_input =
        from_origin(piece_of(steps_.rank(), strand), layout_.offset(steps_.rank()));
    steps_.open(strand);
    steps_.begin_round(1);
    steps_.copy(input(own_input), steps_.own_stage(own));
    steps_.for_each_other_host([&](int32_t host) {
      const Range home = sorted.of_host(steps_.host());
      steps_.for_each_part(host, home, own, [&](int32_t peer, Range range) {
        steps_.send(peer, part(input(own_input), range.begin - own.begin, range.count));
      });
      const Range share = steps_.own_share(sorted.of_host(host));
      for (const int32_t from : problem_.topology->ranks_on(host)) {
        const Range range = overlap(sorted.of_rank(from), share);
        if (range.count > 0) steps_.recv(from, steps_.own_stage(range));
      }
    });
    steps_.begin_round(2);
    steps_.hand_out();
    steps_.begin_round(3);
    for (int32_t rank = 0; rank < problem_.size; ++rank) take_block(sorted, rank, strand);
    steps_.begin_round(4);
    steps_.mark(Mark::kTaken);
  }

  /// A block of this host lies in its rank's stage, another one in those of who received it.
  void take_block(const SortedPieces& sorted, int32_t rank, uint32_t strand) {
    const Range place = sorted.of_rank(rank);
    const int32_t host = problem_.topology->host_of(rank);
    const auto take_part = [&](int32_t owner, Range range) {
      const uint64_t at = piece_of(rank, strand).begin + range.begin - place.begin;
      steps_.copy(steps_.stage(owner, range), output({at, range.count}));
    };
    if (host != steps_.host()) {
      steps_.for_each_part(steps_.host(), sorted.of_host(host), place, take_part);
    } else if (place.count > 0) {
      take_part(rank, place);
    }
  }
};

/// Each host folds what it has for the ranks of another one and sends them the sums. Link of a
/// host: the blocks of all others once out, those of its ranks H-1 times in, in 1 step.
class Reducescatter : Blocks {
 public:
  explicit Reducescatter(const Problem& problem)
      : Blocks(problem, 6), own_block_(layout_.block(problem.rank)) {
    steps_.reserve_sums(sorted(0).of_rank(problem.rank).count);
    // In place, the output lies over input that later strands still need.
    result_ = problem.in_place ? steps_.scratch(own_block_.count) : output({0, own_block_.count});
    steps_.folds_in(FoldOrder::kHosts);
    for (uint32_t strand = 0; strand < strands_; ++strand) add(strand);
    if (problem.in_place) {
      steps_.at_the_end();
      steps_.copy(result_, output({0, own_block_.count}));
    }
  }
  [[nodiscard]] Schedule take() { return steps_.take(); }

 private:
  void add(uint32_t strand) {
    const SortedPieces sorted = this->sorted(strand);
    const Range own = sorted.of_rank(steps_.rank());
    steps_.open(strand);
    steps_.begin_round(1);
    for (int32_t rank = 0; rank < problem_.size; ++rank) {
      const Range place = sorted.of_rank(rank);
      if (place.count > 0) steps_.copy(input(piece_of(rank, strand)), steps_.own_stage(place));
    }
    steps_.begin_round(2);
    steps_.fill();
    steps_.begin_round(3);
    steps_.fold_inside(own);
    steps_.for_each_other_host(
        [&](int32_t host) { steps_.fold_inside(steps_.own_share(sorted.of_host(host))); });
    steps_.begin_round(4);
    steps_.mark(Mark::kTaken);
    exchange_sums(sorted, own);
    steps_.begin_round(5);
    const uint64_t at = piece_of(steps_.rank(), strand).begin - own_block_.begin;
    if (own.count > 0) steps_.fold_over_hosts(own, part(result_, at, own.count));
  }

  void exchange_sums(const SortedPieces& sorted, Range own) {
    steps_.for_each_other_host([&](int32_t host) {
      const Range share = steps_.own_share(sorted.of_host(host));
      for (const int32_t to : problem_.topology->ranks_on(host)) {
        const Range range = overlap(sorted.of_rank(to), share);
        if (range.count > 0) steps_.send(to, steps_.own_stage(range));
      }
      const Block sum = steps_.sum_from(host, own.count);
      steps_.for_each_part(host, sorted.of_host(steps_.host()), own,
                           [&](int32_t peer, Range range) {
                             steps_.recv(peer, part(sum, range.begin - own.begin, range.count));
                           });
    });
  }

  const Range own_block_;
  Block result_;
};

/// For each rank of another host, one rank of this host collects the blocks of all and sends them
/// in one message. Link of a host: its blocks for others once out, theirs for it once in, in 1 step
/// of as few messages as there are ranks.
class Alltoall : Blocks {
 public:
  explicit Alltoall(const Problem& problem) : Blocks(problem, 7) {
    const uint64_t longest = piece_of(0, 0).count;
    uint64_t sent = 0;
    uint64_t received = 0;
    steps_.for_each_other_host([&](int32_t host) {
      received += blocks_from(host);
      for (const int32_t to : problem.topology->ranks_on(host))
        sent += sender_to(steps_.host(), to) == problem.rank ? blocks_from(steps_.host()) : 0;
    });
    sent_ = steps_.scratch_per_strand(sent * longest);
    received_ = steps_.scratch_per_strand(received * longest);
    for (uint32_t strand = 0; strand < strands_; ++strand) add(strand);
  }
  [[nodiscard]] Schedule take() { return steps_.take(); }

 private:
  [[nodiscard]] uint64_t blocks_from(int32_t host) const {
    return static_cast<uint64_t>(problem_.topology->size_of(host));
  }
  /// The rank of a host that sends to `to`.
  [[nodiscard]] int32_t sender_to(int32_t host, int32_t to) const {
    const auto ranks = problem_.topology->ranks_on(host);
    return ranks[static_cast<size_t>(problem_.topology->place_of(to)) % ranks.size()];
  }
  [[nodiscard]] Block block_of(int32_t from, int32_t to, Range piece) const {
    if (from == steps_.rank()) return input(piece);
    return steps_.stage(from, {static_cast<uint64_t>(to) * piece.count, piece.count});
  }

  void add(uint32_t strand) {
    const uint64_t count = piece_of(0, strand).count;
    const auto piece = [&](int32_t rank) { return piece_of(rank, strand); };
    steps_.open(strand);
    steps_.begin_round(1);
    for (int32_t to = 0; to < problem_.size && !steps_.alone(); ++to) {
      const bool own = to == steps_.rank();
      if (!own && count > 0)
        steps_.copy(input(piece(to)), steps_.own_stage({static_cast<uint64_t>(to) * count, count}));
    }
    steps_.begin_round(2);
    steps_.fill();
    steps_.begin_round(3);
    Block run = steps_.slot(sent_, strand);
    for_each_send(
        [&](int32_t to) {
          for (const int32_t from : steps_.neighbours()) {
            steps_.copy(block_of(from, to, piece(to)), part(run, 0, count));
            run = part(run, count, run.count - count);
          }
        },
        count);
    steps_.begin_round(4);
    exchange(strand, count);
    steps_.begin_round(5);
    take_blocks(strand, count);
    steps_.begin_round(6);
    steps_.mark(Mark::kTaken);
  }

  template <typename Use>
  void for_each_send(const Use& use, uint64_t count) {
    if (count == 0) return;
    steps_.for_each_other_host([&](int32_t host) {
      for (const int32_t to : problem_.topology->ranks_on(host))
        if (sender_to(steps_.host(), to) == steps_.rank()) use(to);
    });
  }

  void exchange(uint32_t strand, uint64_t count) {
    const uint64_t length = count * blocks_from(steps_.host());
    Block run = steps_.slot(sent_, strand);
    for_each_send(
        [&](int32_t to) {
          steps_.send(to, part(run, 0, length));
          run = part(run, length, run.count - length);
        },
        count);
    Block into = steps_.slot(received_, strand);
    steps_.for_each_other_host([&](int32_t host) {
      const uint64_t arriving = count * blocks_from(host);
      if (arriving > 0) steps_.recv(sender_to(host, steps_.rank()), part(into, 0, arriving));
      into = part(into, arriving, into.count - arriving);
    });
  }

  void take_blocks(uint32_t strand, uint64_t count) {
    if (count == 0) return;
    for (const int32_t from : steps_.neighbours())
      steps_.copy(block_of(from, steps_.rank(), piece_of(steps_.rank(), strand)),
                  output(piece_of(from, strand)));
    Block arrived = steps_.slot(received_, strand);
    steps_.for_each_other_host([&](int32_t host) {
      for (const int32_t from : problem_.topology->ranks_on(host)) {
        steps_.copy(part(arrived, 0, count), output(piece_of(from, strand)));
        arrived = part(arrived, count, arrived.count - count);
      }
    });
  }

  Block sent_, received_;
};

}  // namespace

Schedule two_level_blocks(const Problem& problem) {
  if (problem.kind == OpKind::kAllgather) return Allgather(problem).take();
  if (problem.kind == OpKind::kReducescatter) return Reducescatter(problem).take();
  return Alltoall(problem).take();
}

}  // namespace corro::collective
