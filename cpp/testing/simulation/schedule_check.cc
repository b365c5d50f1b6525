// What can be said about schedules without running them.
#include <algorithm>
#include <compare>
#include <tuple>

#include <fmt/format.h>

#include "testing/simulation/simulate.h"
#include "testing/simulation/simulated_memory.h"

namespace corro::collective {
namespace {

struct Message {
  int32_t from, to;
  uint32_t tag, strand, round;
  uint64_t count;
  friend auto operator<=>(const Message&, const Message&) = default;
};

std::string describe(const Message& m) {
  return fmt::format("rank {} -> rank {}: tag {}, strand {}, round {}, {} elements", m.from, m.to,
                     m.tag, m.strand, m.round, m.count);
}

Status broken(std::string text) { return {Code::kInternal, std::move(text)}; }

/// An access of a step to memory.
struct Access {
  uint64_t begin, end;
  uint32_t strand, round;
  size_t step;
  bool writes;
};

bool concurrent(const Access& a, const Access& b, uint32_t window) {
  if (a.strand == b.strand) return a.round == b.round;
  const uint32_t apart = a.strand > b.strand ? a.strand - b.strand : b.strand - a.strand;
  return apart < window;
}

/// Collects the accesses of one rank's steps, refusing what is wrong with a step by itself.
class Accesses {
 public:
  Accesses(const Problem& problem, const Schedule& schedule)
      : schedule_(schedule), problem_(problem), memory_(problem, schedule) {}

  Status collect() {
    for (size_t i = 0; i < schedule_.steps.size(); ++i) {
      const Step& step = schedule_.steps[i];
      if (step.kind == StepKind::kSend) CORRO_TRY(add(i, step.from, false));
      if (step.kind == StepKind::kRecv) CORRO_TRY(add(i, step.into, true));
      if (step.kind == StepKind::kCopy) CORRO_TRY(add_copy(i));
      if (step.kind == StepKind::kReduce) CORRO_TRY(add_fold(i));
    }
    return {};
  }

  std::vector<Access>& all() { return accesses_; }

 private:
  Status add_copy(size_t i) {
    const Step& step = schedule_.steps[i];
    CORRO_TRY(check_own_overlap(i, step.from));
    const bool own = step.from.buffer != Buffer::kStage || step.from.owner == problem_.rank;
    if (own && memory_.addresses(step.from) == memory_.addresses(step.into))
      return {};  // nothing to do
    CORRO_TRY(add(i, step.from, false));
    return add(i, step.into, true);
  }

  Status add_fold(size_t i) {
    const Step& step = schedule_.steps[i];
    CORRO_TRY(add(i, step.into, true));
    for (uint32_t s = 0; s < step.sources_count; ++s) {
      const Block& source = schedule_.sources[step.sources_begin + s];
      if (source.count != step.into.count) return broken(fmt::format("step {}: unequal source", i));
      CORRO_TRY(add(i, source, false));
      CORRO_TRY(check_own_overlap(i, source));
    }
    return step.sources_count > 0 ? Status() : broken(fmt::format("step {}: no sources", i));
  }

  Status add(size_t i, const Block& block, bool writes) {
    const Step& step = schedule_.steps[i];
    if (!memory_.contains(block)) return broken(fmt::format("step {}: outside its buffer", i));
    if (block.buffer == Buffer::kStage && block.owner != problem_.rank) {
      const Topology& topology = *problem_.topology;
      if (topology.host_of(block.owner) != topology.host_of(problem_.rank))
        return broken(fmt::format("step {}: the stage of another host", i));
      return writes ? broken(fmt::format("step {}: writes to another stage", i)) : Status();
    }
    if (writes && block.count > 0 && block.buffer == Buffer::kInput) {
      return broken(fmt::format("step {}: writes to the input", i));
    }
    const Range at = memory_.addresses(block);
    if (at.count > 0) {
      accesses_.push_back({at.begin, at.begin + at.count, step.strand, step.round, i, writes});
    }
    return {};
  }

  Status check_own_overlap(size_t i, const Block& source) const {
    const Range from = memory_.addresses(source);
    const Range into = memory_.addresses(schedule_.steps[i].into);
    if (from.count != into.count) return broken(fmt::format("step {}: unequal lengths", i));
    if (source.buffer == Buffer::kStage && source.owner != problem_.rank) return {};
    const bool apart =
        from.begin >= into.begin + into.count || into.begin >= from.begin + from.count;
    if (apart || from == into) return {};
    return broken(fmt::format("step {}: source and target overlap in part", i));
  }

  const Schedule& schedule_;
  const Problem& problem_;
  SimulatedMemory memory_;
  std::vector<Access> accesses_;
};

Status check_order(const Schedule& schedule) {
  for (size_t i = 1; i < schedule.steps.size(); ++i) {
    const Step& a = schedule.steps[i - 1];
    const Step& b = schedule.steps[i];
    if (std::tie(b.strand, b.round) < std::tie(a.strand, a.round)) {
      return broken(fmt::format("step {} is out of order", i));
    }
  }
  if (!schedule.steps.empty() && schedule.steps.back().strand >= schedule.strands) {
    return broken("more strands than the schedule says");
  }
  return {};
}

}  // namespace

std::vector<Schedule> generate_all(std::span<const Problem> problems, Algorithm algorithm) {
  std::vector<Schedule> schedules;
  schedules.reserve(problems.size());
  for (const Problem& problem : problems) schedules.push_back(generate(problem, algorithm));
  return schedules;
}

Status check_messages(std::span<const Schedule> schedules) {
  std::vector<Message> sent;
  std::vector<Message> received;
  for (size_t r = 0; r < schedules.size(); ++r) {
    const auto rank = static_cast<int32_t>(r);
    for (const Step& step : schedules[r].steps) {
      if (step.kind == StepKind::kSend) {
        sent.push_back({rank, step.peer, step.tag, step.strand, step.round, step.from.count});
      } else if (step.kind == StepKind::kRecv) {
        received.push_back({step.peer, rank, step.tag, step.strand, step.round, step.into.count});
      }
    }
  }
  std::sort(sent.begin(), sent.end());
  std::sort(received.begin(), received.end());
  for (size_t i = 0; i < std::min(sent.size(), received.size()); ++i) {
    if (sent[i] == received[i]) continue;
    return broken(fmt::format("sent: {}; received: {}", describe(sent[i]), describe(received[i])));
  }
  if (sent.size() != received.size()) {
    return broken(fmt::format("{} messages sent, {} received", sent.size(), received.size()));
  }
  for (size_t i = 1; i < sent.size(); ++i) {
    const Message& a = sent[i - 1];
    const Message& b = sent[i];
    if (std::tie(a.from, a.to, a.tag) == std::tie(b.from, b.to, b.tag)) {
      return broken("a tag is used twice: " + describe(b));
    }
  }
  return {};
}

Status check_memory(const Problem& problem, const Schedule& schedule) {
  CORRO_TRY(check_order(schedule));
  Accesses accesses(problem, schedule);
  CORRO_TRY(accesses.collect());
  std::vector<Access>& all = accesses.all();
  std::sort(all.begin(), all.end(),
            [](const Access& a, const Access& b) { return a.begin < b.begin; });
  std::vector<const Access*> open;
  for (const Access& access : all) {
    std::erase_if(open, [&](const Access* o) { return o->end <= access.begin; });
    for (const Access* other : open) {
      if (other->step == access.step || !(other->writes || access.writes)) continue;
      if (!concurrent(*other, access, schedule.strand_window)) continue;
      return broken(fmt::format("rank {}: steps {} and {} touch element {} at the same time",
                                problem.rank, other->step, access.step, access.begin));
    }
    open.push_back(&access);
  }
  return {};
}

}  // namespace corro::collective
