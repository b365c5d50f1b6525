#include "obs/flight_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "obs/timeline_text.h"

namespace corro::obs {
namespace {

/// An operation of a group: the same on all of its ranks.
using OpKey = std::pair<uint32_t, uint64_t>;

/// Who has come to an operation last, and when.
struct Arrival {
  int rank = -1;
  uint64_t at_ns = 0;
};

/// The threads of the trace that show one lane of a rank.
struct Lane {
  std::string name;
  std::vector<uint64_t> until_ns;  ///< Of the last slice of each.
  int first_thread = 0;
};

bool is_collective(const OpSnapshot& op) { return !op.is_firing() && op.op.op_id != kNoOpId; }

/// By rank of the trace, process and time; one object a line.
class TraceText {
 public:
  TraceText(std::span<const TracedRank> ranks, Time now)
      : ranks_(ranks), now_ns_(static_cast<uint64_t>(now.since_start.count())) {
    for (const TracedRank& rank : ranks) {
      if (!rank.process) continue;
      for (const TracedOp& one : rank.process->operations) {
        begin_ns_ = std::min(begin_ns_, one.op.queued_ns);
        if (is_collective(one.op)) note_arrival(rank.rank, one.op);
      }
    }
  }

  std::string take() {
    for (const TracedRank& rank : ranks_) add(rank);
    constexpr auto* kWhole =
        "{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"note\":{}}},\"traceEvents\":[\n{}\n]}}\n";
    return fmt::format(kWhole, json_string(note()), text_);
  }

 private:
  void note_arrival(int rank, const OpSnapshot& op) {
    Arrival& last = arrivals_[{op.op.lane, op.op.op_id}];
    if (op.queued_ns > last.at_ns) last = {.rank = rank, .at_ns = op.queued_ns};
  }

  /// What the reader should know: whoever is not there, and what could not be cut into steps.
  std::string note() const {
    std::vector<std::string> parts;
    for (const TracedRank& rank : ranks_)
      if (!rank.process) parts.push_back(fmt::format("rank {}: {}", rank.rank, rank.missing));
    const bool tells_steps = std::ranges::any_of(
        ranks_, [](const TracedRank& rank) { return rank.process && rank.process->step > 0; });
    const bool has_any = parts.size() < ranks_.size();
    if (has_any && !tells_steps)
      parts.emplace_back(
          "no rank tells its step (corro.set_step), so all that ranks remember is shown");
    return fmt::format("{}", fmt::join(parts, "; "));
  }

  void line(const std::string& object) {
    if (!text_.empty()) text_ += ",\n";
    text_ += object;
  }

  void name(const char* what, int process, int thread, const std::string& name) {
    line(fmt::format(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"name":{}}}}})", process,
                     thread, what, json_string(name)));
  }

  void add(const TracedRank& rank) {
    const std::string host = rank.host.empty() ? "" : " on " + rank.host;
    const std::string missing = rank.process ? "" : " (" + rank.missing + ")";
    name("process_name", rank.rank, 0, fmt::format("rank {}{}{}", rank.rank, host, missing));
    line(fmt::format(
        R"({{"ph":"M","pid":{0},"tid":0,"name":"process_sort_index","args":{{"sort_index":{0}}}}})",
        rank.rank));
    if (!rank.process) return;
    auto lanes = lanes_of(*rank.process);
    int threads = 0;
    for (auto& [key, lane] : lanes) {
      lane.first_thread = ++threads * kThreadsOfLane;
      name("thread_name", rank.rank, lane.first_thread, lane.name);
    }
    for (const TracedOp& one : rank.process->operations)
      add(rank.rank, lanes.at(key_of(one.op)), one);
  }

  using LaneKey = std::pair<std::string, uint32_t>;
  static LaneKey key_of(const OpSnapshot& op) {
    return {op.plan_lane, op.is_firing() ? 0 : op.op.lane};
  }

  static std::map<LaneKey, Lane> lanes_of(const ProcessTrace& process) {
    std::map<LaneKey, Lane> lanes;
    for (const auto& [op, step] : process.operations)
      lanes.try_emplace(key_of(op), Lane{.name = op.plan_lane, .until_ns = {}, .first_thread = 0});
    const auto groups =
        std::ranges::count_if(lanes, [](const auto& lane) { return lane.first.first.empty(); });
    for (auto& [key, lane] : lanes) {
      if (!key.first.empty()) continue;
      lane.name =
          groups == 1 ? "operations" : fmt::format("operations of group {:08x}", key.second);
    }
    return lanes;
  }

  void add(int rank, Lane& lane, const TracedOp& one) {
    const OpSnapshot& op = one.op;
    const uint64_t end = op.done_ns != 0 ? op.done_ns : std::max(now_ns_, op.queued_ns);
    const uint64_t start = op.started_ns != 0 ? std::clamp(op.started_ns, op.queued_ns, end) : end;
    const Row row{rank, take_thread(rank, lane, op.queued_ns, end)};
    const auto [awaited, come] = wait_of(rank, op, end);
    const uint64_t begin = std::max(start, come);
    if (op.queued_ns < come)
      write(row, one, {.name = "wait", .from = op.queued_ns, .to = come, .awaited = awaited});
    if (come < begin) write(row, one, {.name = "queued", .from = come, .to = begin});
    // One that is over is shown even if no time was left for it.
    if (begin < end || op.done_ns != 0)
      write(row, one, {.name = what_of(op), .from = begin, .to = end});
  }

  /// The first thread of the lane that is free from then on, which is busy until `end_ns` now.
  int take_thread(int rank, Lane& lane, uint64_t from_ns, uint64_t end_ns) {
    const auto free =
        std::ranges::find_if(lane.until_ns, [from_ns](uint64_t until) { return until <= from_ns; });
    const auto number = static_cast<int>(free - lane.until_ns.begin());
    const int thread = lane.first_thread + number;
    if (free != lane.until_ns.end()) {
      *free = end_ns;
      return thread;
    }
    lane.until_ns.push_back(end_ns);
    if (number > 0) name("thread_name", rank, thread, lane.name);
    return thread;
  }

  /// Until when the rank waits for others in an operation, and for which one.
  std::pair<int, uint64_t> wait_of(int rank, const OpSnapshot& op, uint64_t end) const {
    if (op.done_ns == 0 && op.waiting_for >= 0) return {op.waiting_for, end};
    const auto last =
        is_collective(op) ? arrivals_.find({op.op.lane, op.op.op_id}) : arrivals_.end();
    if (last == arrivals_.end() || last->second.rank == rank) return {-1, op.queued_ns};
    return {last->second.rank, std::clamp(last->second.at_ns, op.queued_ns, end)};
  }

  static std::string what_of(const OpSnapshot& op) {
    if (op.is_firing()) return op.name;
    const std::string kind(name_of(*op.op.kind));
    return op.name.empty() ? kind : kind + " " + op.name;
  }

  struct Row {
    int process, thread;
  };
  struct Slice {
    std::string name;
    uint64_t from = 0, to = 0;
    int awaited = -1;
  };
  void write(Row row, const TracedOp& one, const Slice& slice) {
    line(fmt::format(
        R"({{"ph":"X","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},"name":{},"args":{{{}}}}})",
        row.process, row.thread, us(slice.from - begin_ns_), us(slice.to - slice.from),
        json_string(slice.name), arguments_of(one, slice)));
  }

  static std::string arguments_of(const TracedOp& one, const Slice& slice) {
    const OpSnapshot& op = one.op;
    const std::string what = what_of(op);
    std::string text = fmt::format(R"("step":{},"phase":"{}")", one.step, name_of(op.phase));
    if (slice.name != what) text += fmt::format(R"(,"operation":{})", json_string(what));
    if (op.op.op_id != kNoOpId)
      text += fmt::format(R"(,"{}":{})", op.is_firing() ? "micro_batch" : "number", op.op.op_id);
    if (op.op.kind)
      text += fmt::format(R"(,"elements":{},"dtype":"{}")", op.op.count, name_of(op.op.dtype));
    if (slice.awaited >= 0) text += fmt::format(R"(,"awaits":"rank {}")", slice.awaited);
    if (op.code != Code::kOk) text += fmt::format(R"(,"error":"{}")", code_name(op.code));
    return text;
  }

  static double us(uint64_t ns) { return static_cast<double>(ns) / 1e3; }

  static constexpr int kThreadsOfLane = 100'000;  ///< Numbers: more than operations are remembered.

  std::span<const TracedRank> ranks_;
  uint64_t now_ns_;
  uint64_t begin_ns_ = std::numeric_limits<uint64_t>::max();
  std::map<OpKey, Arrival> arrivals_;
  std::string text_;
};

}  // namespace

std::string format_trace(std::span<const TracedRank> ranks, Time now) {
  return TraceText(ranks, now).take();
}

}  // namespace corro::obs
