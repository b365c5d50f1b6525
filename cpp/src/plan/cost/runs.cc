// Runs that somebody measured: a table of rows, and what the cost model says of a row.
//
// The first line names the columns, in any order; those that are not known are kept and not read. A
// row becomes a MeasuredRun, or the whole table an error with its line and column. predict() asks
// the same StageCoster that the search asks, but decides nothing: stages hold as many blocks each,
// as Megatron cuts them, blocks recompute all or nothing, and gradients are reduced after backward,
// which is how these runs were made.
#include "plan/cost/runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <utility>

#include "plan/model/transformer.h"

namespace corro::plan {
namespace {

struct Column {
  std::string_view name;
  uint32_t MeasuredRun::* field;
  bool needed;
};
constexpr Column kColumns[] = {
    {"gpus", &MeasuredRun::gpus, true},
    {"global_batch", &MeasuredRun::global_batch, true},
    {"micro_batch", &MeasuredRun::micro_batch, true},
    {"hidden", &MeasuredRun::hidden, true},
    {"heads", &MeasuredRun::heads, true},
    {"layers", &MeasuredRun::layers, true},
    {"seq_len", &MeasuredRun::sequence, true},
    {"tp", &MeasuredRun::tensor, true},
    {"dp", &MeasuredRun::data, true},
    {"pp", &MeasuredRun::pipeline, true},
    {"interleave", &MeasuredRun::chunks, false},
    {"vocabulary", &MeasuredRun::vocabulary, false},
};
constexpr uint32_t kMostRunValue = 1U << 24U;

std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> cells;
  while (true) {
    const size_t comma = line.find(',');
    std::string_view cell = line.substr(0, comma);
    while (!cell.empty() && cell.front() == ' ') cell.remove_prefix(1);
    while (!cell.empty() && (cell.back() == ' ' || cell.back() == '\r')) cell.remove_suffix(1);
    cells.push_back(cell);
    if (comma == std::string_view::npos) return cells;
    line.remove_prefix(comma + 1);
  }
}

std::optional<double> number_in(std::string_view text) {
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (copy.empty() || end != copy.c_str() + copy.size() || !std::isfinite(value)) return {};
  return value;
}

class RunReader {
 public:
  explicit RunReader(std::string_view name) : name_(name) {}

  Status read_header(std::string_view line) {
    const auto cells = cells_of(line);
    for (size_t i = 0; i < cells.size(); ++i) {
      if (!places_.emplace(cells[i], i).second) return refuse(1, cells[i], "is named twice");
    }
    for (const Column& column : kColumns) {
      if (column.needed && !places_.contains(column.name)) {
        return refuse(1, column.name,
                      "is no column; there have to be gpus, global_batch, "
                      "micro_batch, hidden, heads, layers, seq_len, tp, dp, pp");
      }
    }
    return {};
  }

  Result<MeasuredRun> read(std::string_view line, size_t number) {
    const auto cells = cells_of(line);
    if (cells.size() != places_.size()) {
      return refuse(
          number, "",
          fmt::format("has {} values; the first line has {}", cells.size(), places_.size()));
    }
    MeasuredRun run;
    for (const Column& column : kColumns) {
      const auto place = places_.find(column.name);
      if (place == places_.end()) continue;
      const auto value = number_in(cells[place->second]);
      if (!value || *value < 1 || *value > kMostRunValue || *value != std::floor(*value)) {
        return refuse(number, column.name,
                      fmt::format("must be an integer from 1 to {}", kMostRunValue));
      }
      run.*column.field = static_cast<uint32_t>(*value);
    }
    if (const auto place = places_.find("recompute"); place != places_.end()) {
      run.recompute = cells[place->second] != "0";
    }
    if (const auto place = places_.find("step_ms");
        place != places_.end() && !cells[place->second].empty()) {
      const auto value = number_in(cells[place->second]);
      if (!value || *value <= 0) return refuse(number, "step_ms", "must be a positive number");
      run.seconds = *value / 1e3;
    }
    return check(run, number);
  }

 private:
  Result<MeasuredRun> check(const MeasuredRun& run, size_t number) const {
    const uint64_t ranks = uint64_t{run.tensor} * run.data * run.pipeline;
    if (ranks != run.gpus) {
      return refuse(number, "gpus", fmt::format("is {}, but tp x dp x pp is {}", run.gpus, ranks));
    }
    if (run.hidden % run.heads != 0) {
      return refuse(number, "heads",
                    fmt::format("{} do not divide hidden, {}", run.heads, run.hidden));
    }
    if (run.layers < run.pipeline * run.chunks) {
      return refuse(number, "pp", fmt::format("{} stages of {} layers", run.pipeline, run.layers));
    }
    if (run.tensor > run.heads) {
      return refuse(number, "tp", fmt::format("{} ways to cut {} heads", run.tensor, run.heads));
    }
    return run;
  }
  [[nodiscard]] Status refuse(size_t line, std::string_view column, std::string_view what) const {
    return {Code::kInvalidArgument,
            fmt::format("{}:{}: {}{}{}", name_, line, column, column.empty() ? "" : ": ", what)};
  }

  std::string name_;
  std::map<std::string_view, size_t, std::less<>> places_;
};

Model model_of(const MeasuredRun& run) {
  return make_transformer({.layers = run.layers,
                           .hidden = run.hidden,
                           .heads = run.heads,
                           .vocabulary = run.vocabulary,
                           .sequence = run.sequence});
}

/// Stages of as many blocks each as the others; the first ones have one more if they must. The
/// embedding goes with the first stage, the head with the last.
std::vector<LayerRange> even_stages(const MeasuredRun& run) {
  std::vector<LayerRange> stages;
  uint32_t layer = 1;
  for (uint32_t s = 0; s < run.pipeline; ++s) {
    const uint32_t blocks = run.layers / run.pipeline + (s < run.layers % run.pipeline ? 1 : 0);
    stages.push_back({s == 0 ? 0 : layer, layer + blocks});
    layer += blocks;
  }
  stages.back().end = run.layers + 2;
  return stages;
}

}  // namespace

Result<RunTable> read_runs(std::string_view text, std::string_view name) {
  RunTable table;
  RunReader reader(name);
  size_t number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string line(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (++number == 1) {
      table.header = line;
      CORRO_TRY(reader.read_header(table.header));
    } else if (!line.empty()) {
      CORRO_ASSIGN(MeasuredRun run, reader.read(line, number));
      table.lines.push_back(std::move(line));
      table.runs.push_back(run);
    }
  }
  if (number == 0) return Status(Code::kInvalidArgument, fmt::format("{}: is empty", name));
  return table;
}

Machine default_machine() {
  Machine machine;
  machine.device = {.name = "a100-80gb", .memory = 80e9, .memory_bandwidth = 2.0e12};
  machine.device.peak[static_cast<size_t>(DType::kBF16)] = 312e12;
  machine.device.peak[static_cast<size_t>(DType::kF16)] = 312e12;
  machine.device.peak[static_cast<size_t>(DType::kF32)] = 19.5e12;
  machine.host = {.name = "host", .devices = 8, .link = {300e9, 0}, .network = {100e9, 0}};
  machine.between_hosts = machine.host.network;
  return machine;
}

Result<RunPrediction> predict(const MeasuredRun& run, const Machine& machine) {
  const JobShape shape{
      .tensor = run.tensor,
      .data = run.data,
      .pipeline = run.pipeline,
      .micro_batch = run.micro_batch,
      .micro_batches = std::max(1U, run.global_batch / (run.data * run.micro_batch)),
      .chunks = run.chunks,
      .schedule = run.chunks > 1 ? Schedule::kInterleaved : Schedule::kOneFOneB,
      .overlap = false,
      .dtype = DType::kF16};
  CORRO_ASSIGN(const StageCoster costs, StageCoster::create(model_of(run), shape, machine));
  std::vector<StageEstimate> stages;
  RunPrediction prediction;
  const auto ranges = even_stages(run);
  for (uint32_t s = 0; s < ranges.size(); ++s) {
    const auto from_end = static_cast<uint32_t>(ranges.size()) - s;
    RecomputeCounts recompute = costs.recompute_blocks(ranges[s]);
    if (!run.recompute) {
      for (auto& counts : recompute) std::swap(counts[0], counts[2]);
    }
    stages.push_back(costs.estimate(ranges[s], from_end, recompute));
    prediction.bytes = std::max(prediction.bytes, stages.back().memory.sum());
  }
  prediction.seconds = costs.step_of(stages);
  return prediction;
}

}  // namespace corro::plan
