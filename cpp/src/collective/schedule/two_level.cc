// Two-level: operations on one vector. A strand is a piece of the vector, which every rank that has
// one puts into its stage. Inside a host each rank drives its share of the piece: it folds the
// share from the stages of all, exchanges it with those ranks of other hosts that drive the same
// elements, and hands the result out in its stage. So all ranks of a host use its link at once, and
// no element crosses a link more often than it has to.
#include "collective/schedule/algorithms.h"
#include "collective/schedule/host_steps.h"

namespace corro::collective {
namespace {

uint32_t strands_of(const Problem& problem) { return strands_for(problem, problem.count); }

/// Every host owns an even part of the piece, its home: it folds the hosts' sums of its home and
/// sends the result back. Link of a host: 2 (H-1)/H n bytes each way in 2 steps.
class Allreduce {
 public:
  explicit Allreduce(const Problem& problem)
      : steps_(problem, strands_of(problem), 10, piece_of(problem, 0).count) {
    const Range home = home_of(steps_.host(), piece_of(problem, 0).count);
    steps_.reserve_sums(steps_.own_share(home).count);
    steps_.folds_in(FoldOrder::kHosts);
    for (uint32_t strand = 0; strand < steps_.strands(); ++strand)
      add(strand, piece_of(problem, strand));
  }
  [[nodiscard]] Schedule take() { return steps_.take(); }

 private:
  static Range piece_of(const Problem& problem, uint32_t strand) {
    return slice(problem.count, strands_of(problem), strand);
  }
  [[nodiscard]] Range home_of(int32_t host, uint64_t count) const {
    return slice(count, static_cast<uint64_t>(steps_.hosts()), static_cast<uint64_t>(host));
  }

  void add(uint32_t strand, Range piece) {
    count_ = piece.count;
    own_home_ = home_of(steps_.host(), count_);
    own_part_ = steps_.own_share(own_home_);
    steps_.open(strand);
    steps_.begin_round(1);
    steps_.copy(input(piece), steps_.own_stage({0, count_}));
    steps_.begin_round(2);
    steps_.fill();
    steps_.begin_round(3);
    for (int32_t host = 0; host < steps_.hosts(); ++host)
      steps_.fold_inside(steps_.own_share(home_of(host, count_)));
    send_sums();
    steps_.begin_round(5);
    if (own_part_.count > 0) steps_.fold_over_hosts(own_part_, steps_.own_stage(own_part_));
    send_results();
    steps_.begin_round(7);
    steps_.hand_out();
    steps_.begin_round(8);
    for (int32_t host = 0; host < steps_.hosts(); ++host)
      steps_.take_shares(home_of(host, count_), piece.begin);
    steps_.begin_round(9);
    steps_.mark(Mark::kTaken);
  }

  void send_sums() {
    steps_.begin_round(4);
    steps_.for_each_other_host([&](int32_t host) {
      const Range home = home_of(host, count_);
      steps_.for_each_part(host, home, steps_.own_share(home), [&](int32_t peer, Range range) {
        steps_.send(peer, steps_.own_stage(range));
      });
      const Block sum = steps_.sum_from(host, own_part_.count);
      steps_.for_each_part(host, own_home_, own_part_, [&](int32_t peer, Range range) {
        steps_.recv(peer, part(sum, range.begin - own_part_.begin, range.count));
      });
    });
  }

  void send_results() {
    steps_.begin_round(6);
    steps_.for_each_other_host([&](int32_t host) {
      steps_.for_each_part(host, own_home_, own_part_, [&](int32_t peer, Range range) {
        steps_.send(peer, steps_.own_stage(range));
      });
      const Range home = home_of(host, count_);
      steps_.for_each_part(host, home, steps_.own_share(home), [&](int32_t peer, Range range) {
        steps_.recv(peer, steps_.own_stage(range));
      });
    });
  }

  HostSteps steps_;
  // Of the strand:
  uint64_t count_ = 0;
  Range own_home_, own_part_;
};

int32_t root_host(const Problem& problem) { return problem.topology->host_of(problem.root); }

/// A chain of hosts, from the `first` one on around.
class Chain {
 public:
  Chain(const Problem& problem, int32_t first, uint32_t more_rounds)
      : problem_(problem),
        steps_(problem, strands_of(problem),
               2 * static_cast<uint32_t>(problem.topology->hosts()) + more_rounds, piece(0).count),
        position_(static_cast<uint32_t>(wrap(steps_.host() - first, steps_.hosts()))),
        last_(position_ + 1 == static_cast<uint32_t>(steps_.hosts())) {}

 protected:
  [[nodiscard]] Range piece(uint32_t strand) const {
    return slice(problem_.count, strands_of(problem_), strand);
  }
  [[nodiscard]] int32_t next_host() const { return (steps_.host() + 1) % steps_.hosts(); }
  [[nodiscard]] int32_t previous_host() const { return wrap(steps_.host() - 1, steps_.hosts()); }
  [[nodiscard]] bool is_root() const { return steps_.rank() == problem_.root; }

  const Problem& problem_;
  HostSteps steps_;
  const uint32_t position_;  ///< Of the own host in the chain.
  const bool last_;
};

/// The sum travels from the host behind the root's around to the root's. Link of a host: n bytes
/// each way in H-1 steps.
class Reduce : Chain {
 public:
  explicit Reduce(const Problem& problem)
      : Chain(problem, (root_host(problem) + 1) % problem.topology->hosts(), 5) {
    received_ = steps_.scratch_per_strand(steps_.own_share({0, piece(0).count}).count);
    steps_.folds_in(FoldOrder::kHosts);
    for (uint32_t strand = 0; strand < steps_.strands(); ++strand) add(strand, piece(strand));
  }
  [[nodiscard]] Schedule take() { return steps_.take(); }

 private:
  void add(uint32_t strand, Range piece) {
    const Range whole{0, piece.count};
    const Range own = steps_.own_share(whole);
    const Block received = part(steps_.slot(received_, strand), 0, own.count);
    steps_.open(strand);
    steps_.begin_round(1);
    steps_.copy(input(piece), steps_.own_stage(whole));
    steps_.begin_round(2);
    steps_.fill();
    steps_.begin_round(3);
    steps_.fold_inside(own);
    steps_.begin_round(4);
    if (!last_) steps_.mark(Mark::kTaken);
    if (position_ > 0) {
      steps_.begin_round(2 + 2 * position_);
      steps_.for_each_part(previous_host(), whole, own, [&](int32_t peer, Range range) {
        steps_.recv(peer, part(received, range.begin - own.begin, range.count));
      });
      steps_.begin_round(3 + 2 * position_);
      if (own.count > 0)
        steps_.fold(steps_.own_stage(own), std::vector{received, steps_.own_stage(own)}, last_);
    }
    steps_.begin_round(4 + 2 * position_);
    if (last_) return hand_to_root(piece);
    steps_.for_each_part(next_host(), whole, own, [&](int32_t peer, Range range) {
      steps_.send(peer, steps_.own_stage(range));
    });
  }

  void hand_to_root(Range piece) {
    steps_.mark(Mark::kMade);
    if (is_root()) steps_.await_others(Mark::kMade);
    steps_.begin_round(5 + 2 * position_);
    if (is_root()) steps_.take_shares({0, piece.count}, piece.begin);
    steps_.begin_round(6 + 2 * position_);
    steps_.mark(Mark::kTaken);
  }

  Block received_;
};

/// The vector travels from the root's host around. Link of a host: n bytes each way in H-1 steps.
class Broadcast : Chain {
 public:
  explicit Broadcast(const Problem& problem) : Chain(problem, root_host(problem), 6) {
    for (uint32_t strand = 0; strand < steps_.strands(); ++strand) add(strand, piece(strand));
  }
  [[nodiscard]] Schedule take() { return steps_.take(); }

 private:
  void add(uint32_t strand, Range piece) {
    const Range whole{0, piece.count};
    const Range own = steps_.own_share(whole);
    steps_.open(strand);
    if (position_ == 0) {
      steps_.begin_round(1);
      if (is_root()) steps_.copy(input(piece), steps_.own_stage(whole));
      steps_.begin_round(2);
      if (is_root()) steps_.mark(Mark::kFilled);
      if (!is_root()) steps_.await(problem_.root, Mark::kFilled, strand + 1);
    } else {
      steps_.begin_round(1 + 2 * position_);
      steps_.for_each_part(previous_host(), whole, own, [&](int32_t peer, Range range) {
        steps_.recv(peer, steps_.own_stage(range));
      });
      steps_.begin_round(2 + 2 * position_);
      steps_.mark(Mark::kMade);
    }
    steps_.begin_round(3 + 2 * position_);
    const int32_t source = position_ == 0 ? problem_.root : steps_.rank();
    if (!last_) {
      steps_.for_each_part(next_host(), whole, own, [&](int32_t peer, Range range) {
        steps_.send(peer, steps_.stage(source, range));
      });
    }
    if (position_ > 0) steps_.await_others(Mark::kMade);
    steps_.begin_round(4 + 2 * position_);
    take(piece);
    steps_.begin_round(5 + 2 * position_);
    steps_.mark(Mark::kTaken);
  }

  void take(Range piece) {
    if (is_root()) return steps_.copy(input(piece), output(piece));
    if (position_ == 0)
      return steps_.copy(steps_.stage(problem_.root, {0, piece.count}), output(piece));
    steps_.take_shares({0, piece.count}, piece.begin);
  }
};

/// The first rank of each host hears of its neighbours, tells the other hosts, and hands on that
/// all are there.
Schedule barrier(const Problem& problem) {
  HostSteps steps(problem, 1, 4, 0);
  const auto first_of = [&](int32_t host) { return problem.topology->ranks_on(host)[0]; };
  const int32_t leader = first_of(steps.host());
  steps.open(0);
  steps.begin_round(1);
  steps.mark(Mark::kFilled);
  if (steps.rank() == leader) {
    steps.await_others(Mark::kFilled);
    steps.begin_round(2);
    steps.for_each_other_host([&](int32_t host) {
      steps.send(first_of(host), {});
      steps.recv(first_of(host), {});
    });
    steps.begin_round(3);
    steps.mark(Mark::kMade);
  } else {
    steps.begin_round(3);
    steps.await(leader, Mark::kMade, 1);
  }
  return steps.take();
}

}  // namespace

Schedule two_level(const Problem& problem) {
  switch (problem.kind) {
    case OpKind::kAllreduce:
      return Allreduce(problem).take();
    case OpKind::kReduce:
      return Reduce(problem).take();
    case OpKind::kBroadcast:
      return Broadcast(problem).take();
    case OpKind::kBarrier:
      return barrier(problem);
    default:
      return two_level_blocks(problem);
  }
}

}  // namespace corro::collective
