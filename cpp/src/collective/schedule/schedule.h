// Schedules: a collective as data. Pure functions make the step array of one rank; the engine and
// the simulation (cpp/testing/simulation) run the same arrays.
//
//   Schedule schedule = generate({.kind = OpKind::kAllreduce, .size = 4, .rank = 1, .count = 1000},
//                                Algorithm::kTwoShot);
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "collective/schedule/algorithm.h"
#include "collective/schedule/topology.h"

namespace corro::collective {

enum class Buffer : uint8_t {
  kInput,
  kOutput,
  kScratch,
  kStage,  ///< Memory of one rank that all ranks of its host read, and it alone writes.
};

/// A run of elements in one of the operation's buffers.
struct Block {
  Buffer buffer = Buffer::kInput;
  uint64_t offset = 0;
  uint64_t count = 0;
  int32_t owner = -1;  ///< kStage: the group rank whose stage it is.
  friend bool operator==(const Block&, const Block&) = default;
};

enum class StepKind : uint8_t {
  kSend,    ///< from -> peer. Done when `from` may be overwritten.
  kRecv,    ///< peer -> into.
  kReduce,  ///< into = fold of sources, left to right; `into` may be one of the sources.
  kCopy,    ///< into = from (may be the same place: then nothing to do).
  kMark,    ///< Tells the ranks of this host how far this strand is here. Done once all strands
            ///< before it have told the same.
  kAwait,   ///< Until `peer`, of this host, has told so of `tag` strands.
};

/// What a rank tells the others of its host about its strands.
enum class Mark : uint8_t {
  kFilled,  ///< What others fold or take is in its stage.
  kMade,    ///< The results that it hands out are in its stage.
  kTaken,   ///< It reads no other stage of the strand any more.
};
inline constexpr int kMarkCount = 3;

/// Steps with the same strand run round after round (a rank may have no step in some rounds); all
/// steps of one round may run at once and in any order. Strands are the chunks of a pipeline: a
/// strand starts once every strand up to `strand - strand_window` is done, and is independent
/// otherwise. A message is sent and received in the same strand and round on both sides, so rounds
/// alone rule out deadlock, with any buffering or none. Steps never write to kInput.
struct Step {
  StepKind kind = StepKind::kCopy;
  bool final_fold = false;  ///< kReduce: the result is complete; apply the post-scale.
  uint32_t strand = 0;
  uint32_t round = 0;
  int32_t peer = -1;          ///< Group rank, for kSend, kRecv and kAwait.
  uint32_t tag = 0;           ///< Unique within (operation, sender, receiver); equal on both sides.
  Mark mark = Mark::kFilled;  ///< kMark, kAwait.
  Block from;
  Block into;
  uint32_t sources_begin = 0;  ///< kReduce: into Schedule::sources.
  uint32_t sources_count = 0;
};

/// What decides in which order, and in which groups, the contributions to an element are folded.
/// Chunks do not change it.
enum class FoldOrder : uint8_t {
  kRank,   ///< Left to right in rank order in one go, as all in-node paths do: the same bits. Also
           ///< where nothing is folded.
  kHosts,  ///< The topology: in rank order inside each host, then over the hosts; a reduce ends
           ///< with the root's host, all others begin with host 0.
  kRing,   ///< Of an allreduce: the vector is cut into as many blocks as there are contributions,
           ///< and block b is folded from that of rank b + 1 on around to that of rank b, one by
           ///< one.
  kOther,  ///< The algorithm, and where the element lies.
};

struct Schedule {
  std::vector<Step> steps;  ///< Ordered by (strand, round).
  std::vector<Block> sources;
  uint64_t scratch_count = 0;  ///< Elements of scratch needed.
  uint64_t stage_count = 0;    ///< Elements of each rank's stage; the same on all ranks.
  uint32_t strands = 0;
  uint32_t strand_window = 1;  ///< See Step; bounds the scratch and what is in flight.
  FoldOrder order = FoldOrder::kRank;
};

/// What is to be done, as one rank sees it. All ranks pass the same values but for `rank`,
/// `send_counts`, alltoall's `counts`, allgather's `count`, and `in_place`.
struct Problem {
  OpKind kind = OpKind::kAllreduce;
  int32_t size = 1;
  int32_t rank = 0;
  int32_t root = 0;                            ///< The peer of send and recv.
  uint64_t count = 0;                          ///< As in corro_op.
  std::span<const uint64_t> counts = {};       ///< Per rank, empty: equal.
  std::span<const uint64_t> send_counts = {};  ///< alltoall: what this rank sends to each.
  /// Input and output share memory on this rank. Changes the schedule of alltoall and reducescatter
  /// only, never its messages; the others are right either way. Where the input may lie:
  ///   allreduce, broadcast, reduce, alltoall    input == output
  ///   reducescatter                             input == output (the result covers its start)
  ///   allgather, gather (at the root)           input == output + the rank's own offset
  ///   scatter (at the root)                     output == input + the rank's own offset
  bool in_place = false;
  /// No partial sums: every element is folded from all contributions at once, in rank order.
  bool at_once = false;
  /// A fold needs whole vectors, two at a time: no slices, no chunks.
  bool whole = false;
  /// Members without a contribution or result (they own shares, fold and send back): group ranks
  /// size - aggregators .. size - 1. A served allreduce has some, and nothing else.
  int32_t aggregators = 0;
  /// Served: the algorithm of the contributors alone whose bits it gives; two-shot or ring.
  Algorithm folds_as = Algorithm::kTwoShot;
  /// Longest message of a pipeline, in elements; 0: no pipeline. Applies to two-shot, ring,
  /// broadcast and reduce; for two-level, what a rank puts into its stage at once.
  uint64_t chunk_count = 0;
  /// Who shares a host; borrowed. Null: nobody knows, and nothing depends on it.
  const Topology* topology = nullptr;
};

/// The served form of an allreduce that `contributors` describes, as group rank `rank` sees it.
[[nodiscard]] Problem served_problem(const Problem& contributors, int32_t aggregators,
                                     Algorithm folds_as, int32_t rank);

/// True if the algorithm can do it. False for what is malformed: ranks out of range, counts that
/// are not per rank, a send to oneself.
[[nodiscard]] bool supports(Algorithm algorithm, const Problem& problem);
/// Requires supports(). Cost: O(steps). Pure.
[[nodiscard]] Schedule generate(const Problem& problem, Algorithm algorithm);

}  // namespace corro::collective
