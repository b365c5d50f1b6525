#include "testing/simulation/simulate.h"

#include <algorithm>
#include <array>
#include <random>
#include <tuple>

#include <fmt/format.h>

#include "base/check.h"
#include "testing/simulation/simulated_memory.h"
#include "testing/simulation/simulated_strands.h"

namespace corro::collective {
namespace {

/// The contents of an element: what was folded into it.
struct Cell {
  uint64_t sum = 0;    ///< Of the contributions: each is there once.
  uint64_t order = 0;  ///< Changes with the order and the grouping of the folds.
  bool final = false;  ///< The post-scale was applied.
  friend bool operator==(const Cell&, const Cell&) = default;
};

uint64_t scramble(uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

/// Element `index` of a rank's input.
Cell contribution(int32_t rank, uint64_t index) {
  const uint64_t value = scramble((static_cast<uint64_t>(rank) << 40U) + index + 1);
  return {value, value, false};
}

uint64_t ordered(uint64_t left, uint64_t right) { return scramble(left * 3 + right); }

Status broken(std::string text) { return {Code::kInternal, std::move(text)}; }

/// One rank: its memory, and how far it has come.
class SimulatedRank {
 public:
  SimulatedRank(const Problem& problem, const Schedule& schedule)
      : schedule_(schedule),
        memory_(problem, schedule),
        cells_(memory_.size()),
        strands_(schedule) {
    const Range in = memory_.addresses({Buffer::kInput, 0, buffer_sizes(problem).input});
    for (uint64_t i = 0; i < in.count; ++i) {
      cells_[in.begin + i] = contribution(problem.rank, i);
    }
  }

  [[nodiscard]] const Step& step(size_t i) const { return schedule_.steps[i]; }
  [[nodiscard]] const Block& source(size_t i) const { return schedule_.sources[i]; }
  SimulatedStrands& strands() { return strands_; }

  /// Tells so of a strand, unless one before it has not yet; true if it has told.
  bool mark(Mark mark, uint32_t strands) {
    uint32_t& told = marks_[static_cast<size_t>(mark)];
    if (told + 1 == strands) told = strands;
    return told >= strands;
  }
  [[nodiscard]] uint32_t marked(Mark mark) const { return marks_[static_cast<size_t>(mark)]; }

  /// Of its own memory, whatever the block says.
  [[nodiscard]] std::vector<Cell> read(const Block& block) const {
    const auto begin = cells_.begin() + static_cast<std::ptrdiff_t>(memory_.addresses(block).begin);
    return {begin, begin + static_cast<std::ptrdiff_t>(block.count)};
  }
  void write(const Block& block, const std::vector<Cell>& cells) {
    CORRO_CHECK(cells.size() == block.count, cells.size(), block.count);
    std::copy(cells.begin(), cells.end(),
              cells_.begin() + static_cast<std::ptrdiff_t>(memory_.addresses(block).begin));
  }

 private:
  const Schedule& schedule_;
  SimulatedMemory memory_;
  std::vector<Cell> cells_;
  SimulatedStrands strands_;
  std::array<uint32_t, kMarkCount> marks_{};
};

/// The group, and the messages between its ranks.
class Simulation {
 public:
  Simulation(std::span<const Problem> problems, std::span<const Schedule> schedules,
             const SimulationOptions& options)
      : options_(options), random_(options.seed), channels_(problems.size() * problems.size()) {
    ranks_.reserve(problems.size());
    for (size_t r = 0; r < problems.size(); ++r) ranks_.emplace_back(problems[r], schedules[r]);
    for (size_t r = 0; r < problems.size(); ++r)
      slowness_.push_back(1 + random_() % 4 * (random_() % 2));
  }

  Status run() {
    for (;;) {
      bool moved = false;
      bool skipped = false;
      bool all_done = true;
      const size_t first = random_() % ranks_.size();
      for (size_t i = 0; i < ranks_.size(); ++i) {
        const size_t r = (first + i) % ranks_.size();
        if (ranks_[r].strands().done()) continue;
        all_done = false;
        if (random_() % slowness_[r] != 0) {
          skipped = true;
          continue;
        }
        CORRO_TRY(run_rank(r, moved));
      }
      if (all_done) return {};
      if (!moved && !skipped) return deadlock();
    }
  }

  [[nodiscard]] const SimulatedRank& rank(size_t r) const { return ranks_[r]; }

 private:
  struct Message {
    uint32_t tag;
    std::vector<Cell> cells;
  };

  /// Of a rank's own memory, or of another one's stage.
  [[nodiscard]] std::vector<Cell> read(size_t r, const Block& block) const {
    const size_t owner = block.buffer == Buffer::kStage ? static_cast<size_t>(block.owner) : r;
    return ranks_[owner].read(block);
  }

  Status fold(size_t r, const Step& step) {
    std::vector<Cell> result;
    for (uint32_t s = 0; s < step.sources_count; ++s) {
      const std::vector<Cell> source = read(r, ranks_[r].source(step.sources_begin + s));
      if (s == 0) result = source;
      for (size_t i = 0; i < source.size(); ++i) {
        if (source[i].final) return broken(fmt::format("rank {} folds a result", r));
        if (s == 0) continue;
        result[i].sum += source[i].sum;
        result[i].order = ordered(result[i].order, source[i].order);
      }
    }
    for (Cell& cell : result) cell.final = step.final_fold;
    ranks_[r].write(step.into, result);
    return {};
  }

  std::vector<Message>& channel(size_t from, size_t to) {
    return channels_[from * ranks_.size() + to];
  }

  /// Tries every open step of a rank once, from a random one on.
  Status run_rank(size_t r, bool& moved) {
    std::vector<size_t> tried = std::move(ranks_[r].strands().open());
    ranks_[r].strands().open().clear();
    if (tried.empty()) return {};
    std::rotate(tried.begin(),
                tried.begin() + static_cast<std::ptrdiff_t>(random_() % tried.size()), tried.end());
    for (const size_t i : tried) {
      CORRO_ASSIGN(const bool ran, run_step(r, i));
      moved = moved || ran;
      if (ran) {
        ranks_[r].strands().complete(i);
      } else {
        ranks_[r].strands().open().push_back(i);
      }
    }
    return {};
  }

  Result<bool> run_step(size_t r, size_t i) {
    SimulatedRank& rank = ranks_[r];
    const Step& step = rank.step(i);
    switch (step.kind) {
      case StepKind::kSend:
        return send(r, step);
      case StepKind::kRecv:
        return receive(r, step);
      case StepKind::kCopy:
        rank.write(step.into, read(r, step.from));
        return true;
      case StepKind::kReduce:
        CORRO_TRY(fold(r, step));
        return true;
      case StepKind::kMark:
        return rank.mark(step.mark, step.tag);
      case StepKind::kAwait:
        return ranks_[static_cast<size_t>(step.peer)].marked(step.mark) >= step.tag;
    }
    return false;
  }

  /// Buffers the message, or hands it to the receive that waits for it.
  bool send(size_t r, const Step& step) {
    const auto to = static_cast<size_t>(step.peer);
    std::vector<Message>& messages = channel(r, to);
    if (messages.size() < options_.buffered_messages) {
      messages.push_back({step.tag, read(r, step.from)});
      return true;
    }
    std::vector<size_t>& waiting = ranks_[to].strands().open();
    const auto match = std::find_if(waiting.begin(), waiting.end(), [&](size_t i) {
      const Step& other = ranks_[to].step(i);
      return other.kind == StepKind::kRecv && other.peer == static_cast<int32_t>(r) &&
             other.tag == step.tag;
    });
    if (match == waiting.end()) return false;
    const size_t received = *match;
    waiting.erase(match);
    ranks_[to].write(ranks_[to].step(received).into, read(r, step.from));
    ranks_[to].strands().complete(received);
    return true;
  }

  bool receive(size_t r, const Step& step) {
    std::vector<Message>& messages = channel(static_cast<size_t>(step.peer), r);
    const auto match = std::find_if(messages.begin(), messages.end(),
                                    [&](const Message& m) { return m.tag == step.tag; });
    if (match == messages.end()) return false;
    ranks_[r].write(step.into, match->cells);
    messages.erase(match);
    return true;
  }

  /// Names the step that is furthest behind.
  Status deadlock() {
    const Step* behind = nullptr;
    size_t rank = 0;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (const size_t i : ranks_[r].strands().open()) {
        const Step& step = ranks_[r].step(i);
        if (behind != nullptr &&
            std::tie(behind->strand, behind->round) <= std::tie(step.strand, step.round)) {
          continue;
        }
        behind = &step;
        rank = r;
      }
    }
    CORRO_CHECK(behind != nullptr);
    return broken(fmt::format("deadlock: rank {} waits in strand {}, round {} for rank {}, tag {}",
                              rank, behind->strand, behind->round, behind->peer, behind->tag));
  }

  const SimulationOptions options_;
  std::mt19937_64 random_;
  std::vector<SimulatedRank> ranks_;
  std::vector<uint64_t> slowness_;  ///< A rank runs in one of so many passes.
  std::vector<std::vector<Message>> channels_;
};

/// What the output of one rank has to be.
class Expectation {
 public:
  Expectation(std::span<const Problem> problems, size_t rank, FoldOrder order)
      : problems_(problems),
        problem_(problems[rank]),
        order_(order),
        layout_(problem_.counts, problem_.count, problem_.size) {}

  [[nodiscard]] bool reduces() const {
    return problem_.kind == OpKind::kAllreduce || problem_.kind == OpKind::kReduce ||
           problem_.kind == OpKind::kReducescatter;
  }

  [[nodiscard]] Cell at(uint64_t i) const {
    switch (problem_.kind) {
      case OpKind::kAllreduce:
      case OpKind::kReduce:
        return folded(i);
      case OpKind::kReducescatter:
        return folded(layout_.offset(problem_.rank) + i);
      case OpKind::kScatter:
        return contribution(problem_.root, layout_.offset(problem_.rank) + i);
      case OpKind::kAllgather:
      case OpKind::kGather:
        return contribution(source_of(i), i - layout_.offset(source_of(i)));
      case OpKind::kAlltoall: {
        const int32_t from = source_of(i);
        const Problem& sender = problems_[static_cast<size_t>(from)];
        const Layout sent(sender.send_counts, sender.count, sender.size);
        return contribution(from, sent.offset(problem_.rank) + i - layout_.offset(from));
      }
      default:
        return contribution(problem_.root, i);
    }
  }

 private:
  [[nodiscard]] int32_t source_of(uint64_t i) const {
    int32_t rank = 0;
    while (i >= layout_.offset(rank) + layout_.count(rank)) ++rank;
    return rank;
  }
  static void add(Cell& cell, const Cell& next) {
    cell.sum += next.sum;
    cell.order = ordered(cell.order, next.order);
  }
  [[nodiscard]] Cell folded(uint64_t i) const {
    const int32_t contributors = problem_.size - problem_.aggregators;
    const int32_t first = order_ == FoldOrder::kRing ? first_of_ring(i, contributors) : 0;
    Cell cell = order_ == FoldOrder::kHosts ? folded_by_host(i) : contribution(first, i);
    for (int32_t r = 1; order_ != FoldOrder::kHosts && r < contributors; ++r)
      add(cell, contribution((first + r) % contributors, i));
    cell.final = true;
    return cell;
  }
  [[nodiscard]] int32_t first_of_ring(uint64_t i, int32_t contributors) const {
    int32_t block = 0;
    const auto blocks = static_cast<uint64_t>(contributors);
    for (uint64_t end = 0;; ++block) {
      end += slice(problem_.count, blocks, static_cast<uint64_t>(block)).count;
      if (i < end) return (block + 1) % contributors;
    }
  }
  [[nodiscard]] Cell folded_by_host(uint64_t i) const {
    const Topology& topology = *problem_.topology;
    const int32_t hosts = topology.hosts();
    const int32_t first =
        problem_.kind == OpKind::kReduce ? topology.host_of(problem_.root) + 1 : 0;
    Cell cell;
    for (int32_t h = 0; h < hosts; ++h) {
      const auto ranks = topology.ranks_on((first + h) % hosts);
      Cell sum = contribution(ranks[0], i);
      for (const int32_t r : ranks.subspan(1)) add(sum, contribution(r, i));
      if (h == 0) cell = sum;
      if (h > 0) add(cell, sum);
    }
    return cell;
  }

  std::span<const Problem> problems_;
  const Problem& problem_;
  const FoldOrder order_;
  Layout layout_;
};

Status check_output(std::span<const Problem> problems, std::span<const Schedule> schedules,
                    const Simulation& simulation, size_t r) {
  const Expectation expectation(problems, r, schedules[r].order);
  const uint64_t count = buffer_sizes(problems[r]).output;
  const std::vector<Cell> output = simulation.rank(r).read({Buffer::kOutput, 0, count});
  const bool other_order = expectation.reduces() && schedules[r].order == FoldOrder::kOther;
  const bool same_everywhere = problems[r].kind == OpKind::kAllreduce && other_order;
  std::vector<Cell> first;
  if (same_everywhere) first = simulation.rank(0).read({Buffer::kOutput, 0, count});
  for (uint64_t i = 0; i < count; ++i) {
    Cell want = expectation.at(i);
    const uint64_t given_order = same_everywhere ? first[i].order : output[i].order;
    if (other_order) want.order = given_order;
    if (output[i] == want) continue;
    return broken(fmt::format("rank {}, element {}: {}", r, i,
                              output[i].sum != want.sum       ? "wrong contributions"
                              : output[i].final != want.final ? "post-scale missing"
                                                              : "folded in another order"));
  }
  return {};
}

}  // namespace

Status simulate(std::span<const Problem> problems, std::span<const Schedule> schedules,
                const SimulationOptions& options) {
  CORRO_CHECK(problems.size() == schedules.size(), problems.size(), schedules.size());
  Simulation simulation(problems, schedules, options);
  CORRO_TRY(simulation.run());
  for (size_t r = 0; r < problems.size(); ++r) {
    CORRO_TRY(check_output(problems, schedules, simulation, r));
  }
  return {};
}

}  // namespace corro::collective
