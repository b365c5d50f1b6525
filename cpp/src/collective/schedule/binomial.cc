#include "collective/schedule/algorithms.h"
#include "collective/schedule/builder.h"

namespace corro::collective {
namespace {

/// A rank's place in the tree. Positions count from the root on; see subtree_level().
class Node {
 public:
  explicit Node(const Problem& problem)
      : size_(problem.size),
        root_(problem.root),
        position_(wrap(problem.rank - problem.root, problem.size)),
        level_(subtree_level(position_, size_)) {}

  [[nodiscard]] bool is_root() const { return position_ == 0; }
  [[nodiscard]] int32_t position() const { return position_; }
  /// The parent is reached at this level, children at the levels below.
  [[nodiscard]] int32_t level() const { return level_; }
  [[nodiscard]] int32_t parent() const { return rank_of(position_ - (int32_t{1} << level_)); }
  [[nodiscard]] int32_t child_position(int32_t level) const {
    return position_ + (int32_t{1} << level);
  }
  [[nodiscard]] bool has_child(int32_t level) const { return child_position(level) < size_; }
  [[nodiscard]] int32_t child(int32_t level) const { return rank_of(child_position(level)); }
  [[nodiscard]] int32_t rank_of(int32_t position) const { return wrap(position + root_, size_); }
  [[nodiscard]] int32_t levels() const { return log2_ceil(size_); }

 private:
  int32_t size_, root_, position_, level_;
};

Schedule binomial_broadcast(const Problem& problem) {
  const Node node(problem);
  Builder builder(strands_for(problem, problem.count), static_cast<uint32_t>(node.levels()) + 1);
  const auto round_of = [&](int32_t level) {
    return static_cast<uint32_t>(node.levels() - 1 - level);
  };
  for (uint32_t strand = 0; strand < builder.strands(); ++strand) {
    const Range piece = slice(problem.count, builder.strands(), strand);
    if (node.is_root()) {
      builder.at(strand, 0);
      builder.copy(input(piece), output(piece));
    } else {
      builder.at(strand, round_of(node.level()));
      builder.recv(node.parent(), output(piece));
    }
    for (int32_t level = node.level() - 1; level >= 0; --level) {
      if (!node.has_child(level)) continue;
      builder.at(strand, round_of(level));
      builder.send(node.child(level), node.is_root() ? input(piece) : output(piece));
    }
  }
  return builder.take();
}

Schedule binomial_reduce(const Problem& problem) {
  const Node node(problem);
  Builder builder(strands_for(problem, problem.count),
                  2 * static_cast<uint32_t>(node.levels()) + 1);
  builder.folds_in(FoldOrder::kOther);
  const uint64_t longest = slice(problem.count, builder.strands(), 0).count;
  const bool leaf = node.level() == 0 || !node.has_child(0);
  const Block incoming = builder.scratch_per_strand(leaf ? 0 : longest);
  const Block partial = builder.scratch_per_strand(leaf || node.is_root() ? 0 : longest);
  for (uint32_t strand = 0; strand < builder.strands(); ++strand) {
    const Range piece = slice(problem.count, builder.strands(), strand);
    const Block slot =
        part(builder.slot(partial, strand), 0, leaf || node.is_root() ? 0 : piece.count);
    const Block result = node.is_root() ? output(piece) : slot;
    Block have = input(piece);
    if (problem.size == 1) {
      builder.at(strand, 0);
      builder.fold(result, {&have, 1}, true);
    }
    for (int32_t level = 0; level < node.level() && node.has_child(level); ++level) {
      const Block received = part(builder.slot(incoming, strand), 0, piece.count);
      const Block sources[] = {have, received};
      builder.at(strand, 2 * static_cast<uint32_t>(level));
      builder.recv(node.child(level), received);
      builder.at(strand, 2 * static_cast<uint32_t>(level) + 1);
      builder.fold(result, sources, node.is_root() && level == node.levels() - 1);
      have = result;
    }
    if (node.is_root()) continue;
    builder.at(strand, 2 * static_cast<uint32_t>(node.level()));
    builder.send(node.parent(), have);
  }
  return builder.take();
}

/// Runs of positions lie together in a subtree's scratch; at the root they may wrap around the last
/// rank.
class Runs {
 public:
  Runs(const Problem& problem, const Node& node)
      : layout_(problem.counts, problem.count, problem.size), node_(node), size_(problem.size) {}

  [[nodiscard]] uint64_t count(int32_t position, int32_t length) const {
    return layout_.count_of_run(node_.rank_of(position), length);
  }
  [[nodiscard]] Range of_rank(int32_t rank) const { return layout_.block(rank); }
  /// True if the ranks of the run go past the last one.
  [[nodiscard]] bool wraps(int32_t position, int32_t length) const {
    return node_.rank_of(position) + length > size_;
  }
  /// The run's place in a buffer of all blocks in rank order; for wraps(), of its first, unwrapped
  /// part.
  [[nodiscard]] Range in_rank_order(int32_t position, int32_t length) const {
    const int32_t first = node_.rank_of(position);
    const int32_t end = std::min(first + length, size_);
    return {layout_.offset(first), layout_.offset(end) - layout_.offset(first)};
  }
  [[nodiscard]] int32_t subtree(int32_t position) const { return subtree_size(position, size_); }

 private:
  Layout layout_;
  const Node& node_;
  int32_t size_;
};

/// The second part of a run that wraps begins at rank 0.
Range wrapped_part(Range first_part, uint64_t total) { return {0, total - first_part.count}; }

Schedule gather_at_root(const Problem& problem, const Node& node, const Runs& runs) {
  Builder builder(1, static_cast<uint32_t>(node.levels()) + 2);
  builder.at(0, 0);
  const Range own = runs.of_rank(problem.rank);
  builder.copy(input({0, own.count}), output(own));
  Block wrapped;
  Range first_part;
  for (int32_t level = 0; level < node.levels(); ++level) {
    const int32_t position = node.child_position(level);
    const int32_t length = runs.subtree(position);
    builder.at(0, static_cast<uint32_t>(level));
    Block into = output(runs.in_rank_order(position, length));
    if (runs.wraps(position, length)) {  // one of the runs at most
      first_part = runs.in_rank_order(position, length);
      into = wrapped = builder.scratch(runs.count(position, length));
    }
    builder.recv(node.child(level), into);
  }
  if (wrapped.count > 0) {
    const Range second_part = wrapped_part(first_part, wrapped.count);
    builder.at(0, static_cast<uint32_t>(node.levels()));
    builder.copy(part(wrapped, 0, first_part.count), output(first_part));
    builder.copy(part(wrapped, first_part.count, second_part.count), output(second_part));
  }
  return builder.take();
}

Schedule binomial_gather(const Problem& problem) {
  const Node node(problem);
  const Runs runs(problem, node);
  if (node.is_root()) return gather_at_root(problem, node, runs);
  Builder builder(1, static_cast<uint32_t>(node.levels()) + 2);
  const Block own = input({0, runs.of_rank(problem.rank).count});
  const int32_t length = runs.subtree(node.position());
  Block subtree = own;
  if (length > 1) {
    subtree = builder.scratch(runs.count(node.position(), length));
    builder.at(0, 0);
    builder.copy(own, part(subtree, 0, own.count));
  }
  for (int32_t level = 0; level < node.level() && node.has_child(level); ++level) {
    const int32_t position = node.child_position(level);
    const uint64_t before = runs.count(node.position(), int32_t{1} << level);
    builder.at(0, static_cast<uint32_t>(level));
    builder.recv(node.child(level),
                 part(subtree, before, runs.count(position, runs.subtree(position))));
  }
  builder.at(0, static_cast<uint32_t>(node.level()));
  builder.send(node.parent(), subtree);
  return builder.take();
}

Schedule scatter_at_root(const Problem& problem, const Node& node, const Runs& runs) {
  Builder builder(1, static_cast<uint32_t>(node.levels()) + 2);
  const Range own = runs.of_rank(problem.rank);
  builder.at(0, 0);
  builder.copy(input(own), output({0, own.count}));
  Block wrapped;
  for (int32_t level = 0; level < node.levels(); ++level) {
    const int32_t position = node.child_position(level);
    const int32_t length = runs.subtree(position);
    if (!runs.wraps(position, length)) continue;
    const Range first_part = runs.in_rank_order(position, length);
    wrapped = builder.scratch(runs.count(position, length));
    const Range second_part = wrapped_part(first_part, wrapped.count);
    builder.copy(input(first_part), part(wrapped, 0, first_part.count));
    builder.copy(input(second_part), part(wrapped, first_part.count, second_part.count));
  }
  for (int32_t level = node.levels() - 1; level >= 0; --level) {
    const int32_t position = node.child_position(level);
    const int32_t length = runs.subtree(position);
    builder.at(0, static_cast<uint32_t>(node.levels() - level));
    builder.send(node.child(level), runs.wraps(position, length)
                                        ? wrapped
                                        : input(runs.in_rank_order(position, length)));
  }
  return builder.take();
}

Schedule binomial_scatter(const Problem& problem) {
  const Node node(problem);
  const Runs runs(problem, node);
  if (node.is_root()) return scatter_at_root(problem, node, runs);
  Builder builder(1, static_cast<uint32_t>(node.levels()) + 2);
  const Block own = output({0, runs.of_rank(problem.rank).count});
  const int32_t length = runs.subtree(node.position());
  const Block subtree = length > 1 ? builder.scratch(runs.count(node.position(), length)) : own;
  builder.at(0, static_cast<uint32_t>(node.levels() - node.level()));
  builder.recv(node.parent(), subtree);
  for (int32_t level = node.level() - 1; level >= 0; --level) {
    if (!node.has_child(level)) continue;
    const int32_t position = node.child_position(level);
    const uint64_t before = runs.count(node.position(), int32_t{1} << level);
    builder.at(0, static_cast<uint32_t>(node.levels() - level));
    builder.send(node.child(level),
                 part(subtree, before, runs.count(position, runs.subtree(position))));
  }
  if (length > 1) {
    builder.at(0, static_cast<uint32_t>(node.levels()) + 1);
    builder.copy(part(subtree, 0, own.count), own);
  }
  return builder.take();
}

/// Dissemination: after the message at distance 2^i a rank has heard, through others, of 2^(i+1)
/// ranks.
Schedule binomial_barrier(const Problem& problem) {
  const int32_t rounds = log2_ceil(problem.size);
  Builder builder(1, static_cast<uint32_t>(rounds) + 1);
  for (int32_t round = 0; round < rounds; ++round) {
    const int32_t distance = int32_t{1} << round;
    builder.at(0, static_cast<uint32_t>(round));
    builder.send(wrap(problem.rank + distance, problem.size), {});
    builder.recv(wrap(problem.rank - distance, problem.size), {});
  }
  return builder.take();
}

}  // namespace

/// Cost: ceil(log2 P) steps; broadcast and reduce carry n bytes a step, gather and scatter (P-1) n
/// at the root, the barrier none. Sources: Thakur, Rabenseifner, Gropp (2005), section 4; for the
/// barrier Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization" (1988).
Schedule binomial(const Problem& problem) {
  switch (problem.kind) {
    case OpKind::kBroadcast:
      return binomial_broadcast(problem);
    case OpKind::kReduce:
      return binomial_reduce(problem);
    case OpKind::kGather:
      return binomial_gather(problem);
    case OpKind::kScatter:
      return binomial_scatter(problem);
    default:
      return binomial_barrier(problem);
  }
}

}  // namespace corro::collective
