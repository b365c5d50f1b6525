#include <vector>

#include "collective/schedule/algorithms.h"
#include "collective/schedule/builder.h"

namespace corro::collective {
namespace {

Schedule direct_broadcast(const Problem& problem) {
  Builder builder(1, 1);
  const Range whole{0, problem.count};
  builder.at(0, 0);
  if (problem.rank != problem.root) {
    builder.recv(problem.root, output(whole));
    return builder.take();
  }
  for (int32_t i = 1; i < problem.size; ++i) {
    builder.send(wrap(problem.rank + i, problem.size), input(whole));
  }
  builder.copy(input(whole), output(whole));
  return builder.take();
}

Schedule direct_reduce(const Problem& problem) {
  Builder builder(strands_for(problem, problem.count), 2);
  const bool is_root = problem.rank == problem.root;
  const uint64_t longest = slice(problem.count, builder.strands(), 0).count;
  const auto others = static_cast<uint64_t>(problem.size - 1);
  const Block received = builder.scratch_per_strand(is_root ? others * longest : 0);
  std::vector<Block> sources(static_cast<size_t>(problem.size));
  for (uint32_t strand = 0; strand < builder.strands(); ++strand) {
    const Range piece = slice(problem.count, builder.strands(), strand);
    builder.at(strand, 0);
    if (!is_root) {
      builder.send(problem.root, input(piece));
      continue;
    }
    uint64_t next = 0;
    for (int32_t from = 0; from < problem.size; ++from) {
      Block& source = sources[static_cast<size_t>(from)];
      source = input(piece);
      if (from == problem.rank) continue;
      source = part(builder.slot(received, strand), longest * next++, piece.count);
      builder.recv(from, source);
    }
    builder.at(strand, 1);
    builder.fold(output(piece), sources, true);
  }
  return builder.take();
}

Schedule direct_gather(const Problem& problem) {
  Builder builder(1, 1);
  const Layout layout(problem.counts, problem.count, problem.size);
  const Block own = input({0, layout.count(problem.rank)});
  builder.at(0, 0);
  if (problem.rank != problem.root) {
    builder.send(problem.root, own);
    return builder.take();
  }
  for (int32_t i = 1; i < problem.size; ++i) {
    const int32_t from = wrap(problem.rank + i, problem.size);
    builder.recv(from, output(layout.block(from)));
  }
  builder.copy(own, output(layout.block(problem.rank)));
  return builder.take();
}

Schedule direct_scatter(const Problem& problem) {
  Builder builder(1, 1);
  const Layout layout(problem.counts, problem.count, problem.size);
  const Block own = output({0, layout.count(problem.rank)});
  builder.at(0, 0);
  if (problem.rank != problem.root) {
    builder.recv(problem.root, own);
    return builder.take();
  }
  for (int32_t i = 1; i < problem.size; ++i) {
    const int32_t to = wrap(problem.rank + i, problem.size);
    builder.send(to, input(layout.block(to)));
  }
  builder.copy(input(layout.block(problem.rank)), own);
  return builder.take();
}

Schedule direct_allgather(const Problem& problem) {
  Builder builder(1, 1);
  const Layout layout(problem.counts, problem.count, problem.size);
  const Range own = layout.block(problem.rank);
  builder.at(0, 0);
  for (int32_t i = 1; i < problem.size; ++i) {
    const int32_t from = wrap(problem.rank - i, problem.size);
    builder.recv(from, output(layout.block(from)));
    builder.send(wrap(problem.rank + i, problem.size), input({0, own.count}));
  }
  builder.copy(input({0, own.count}), output(own));
  return builder.take();
}

Schedule direct_alltoall(const Problem& problem) {
  Builder builder(1, 2);
  const Layout sent(problem.send_counts, problem.count, problem.size);
  const Layout received(problem.counts, problem.count, problem.size);
  Block from = input({0, sent.total()});
  if (problem.in_place) {  // what arrives would overwrite what is still to be sent
    from = builder.scratch(sent.total());
    builder.at(0, 0);
    builder.copy(input({0, sent.total()}), from);
  }
  builder.at(0, 1);
  for (int32_t i = 1; i < problem.size; ++i) {
    const int32_t source = wrap(problem.rank - i, problem.size);
    builder.recv(source, output(received.block(source)));
    const int32_t to = wrap(problem.rank + i, problem.size);
    builder.send(to, part(from, sent.offset(to), sent.count(to)));
  }
  builder.copy(part(from, sent.offset(problem.rank), sent.count(problem.rank)),
               output(received.block(problem.rank)));
  return builder.take();
}

Schedule direct_barrier(const Problem& problem) {
  Builder builder(1, 1);
  builder.at(0, 0);
  for (int32_t i = 1; i < problem.size; ++i) {
    builder.recv(wrap(problem.rank - i, problem.size), {});
    builder.send(wrap(problem.rank + i, problem.size), {});
  }
  return builder.take();
}

Schedule direct_pair(const Problem& problem) {
  Builder builder(1, 1);
  builder.at(0, 0);
  if (problem.kind == OpKind::kSend) {
    builder.send(problem.root, input({0, problem.count}));
  } else {
    builder.recv(problem.root, output({0, problem.count}));
  }
  return builder.take();
}

}  // namespace

/// Every block goes from where it is to where it belongs, all at once. Cost: 1 step; the root, or
/// everyone, handles P-1 messages.
Schedule direct(const Problem& problem) {
  switch (problem.kind) {
    case OpKind::kBroadcast:
      return direct_broadcast(problem);
    case OpKind::kReduce:
      return direct_reduce(problem);
    case OpKind::kGather:
      return direct_gather(problem);
    case OpKind::kScatter:
      return direct_scatter(problem);
    case OpKind::kAllgather:
      return direct_allgather(problem);
    case OpKind::kAlltoall:
      return direct_alltoall(problem);
    case OpKind::kBarrier:
      return direct_barrier(problem);
    default:
      return direct_pair(problem);
  }
}

}  // namespace corro::collective
