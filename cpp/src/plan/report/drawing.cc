#include "plan/report/drawing.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "plan/amounts.h"
#include "plan/report/canvas.h"
#include "plan/report/decision_fields.h"
#include "plan/report/facts.h"
#include "plan/report/timeline.h"

namespace corro::plan {
namespace {

constexpr double kLeft = 90;  ///< Where rows begin, behind their labels.
constexpr double kRight = kDrawingWidth - 10;
constexpr double kLegend = 26;  ///< Height of a legend above the rows.

/// Coloured squares with their names.
void add_legend(Canvas& canvas, double x,
                const std::vector<std::pair<std::string, std::string>>& entries) {
  for (const auto& [css, name] : entries) {
    canvas.box({x, 4, 12, 12}, css);
    canvas.text(x + 17, 14, name);
    x += 32 + 7.0 * static_cast<double>(name.size());
  }
}

double row_height(size_t rows) { return rows <= 16 ? 22 : rows <= 32 ? 14 : 9; }

void add_time_axis(Canvas& canvas, double y, double seconds) {
  constexpr int kTicks = 4;
  canvas.line(kLeft, y, kRight, y, "axis");
  for (int i = 0; i <= kTicks; ++i) {
    const double x = kLeft + (kRight - kLeft) * i / kTicks;
    canvas.line(x, y, x, y + 4, "axis");
    canvas.text(x, y + 17, seconds_text(seconds * i / kTicks), "t", i == kTicks ? "end" : "middle");
  }
}

std::string_view words_of(Work work) {
  return work == Work::kWeightGradients ? "gradients of weights" : name_of(work);
}

void add_block(Canvas& canvas, const Block& block, double end, double row) {
  const double scale = (kRight - kLeft) / end;
  const double x = kLeft + block.start * scale;
  const double width = std::min(block.end, end) * scale + kLeft - x;
  const double y = kLegend + block.stage * row;
  const bool is_piece = block.work != Work::kSync && block.work != Work::kUpdate;
  const std::string chunk = block.chunk == 0 ? "" : fmt::format(", chunk {}", block.chunk);
  const std::string what =
      is_piece ? fmt::format(" of micro-batch {}{}", block.micro_batch, chunk) : "";
  canvas.box({x, y + 1, std::max(0.3, width - 0.6), row - 2},
             fmt::format("{} c{}", name_of(block.work), block.chunk % 4),
             fmt::format("stage {}: {}{}, {} to {}", block.stage, words_of(block.work), what,
                         seconds_text(block.start), seconds_text(block.end)));
  const std::string number = fmt::format("{}", block.micro_batch);
  if (is_piece && row >= 14 && width > 4 + 6.5 * static_cast<double>(number.size())) {
    canvas.text(x + width / 2, y + row / 2 + 4, number, "in", "middle");
  }
}

constexpr double kMemoryRow = 22;

void add_memory_bar(Canvas& canvas, double y, const std::string& name, const MemoryUse& use,
                    double limit, double scale) {
  canvas.text(kLeft - 8, y + 15, name, "t", "end");
  double x = kLeft;
  for (const auto& [term, field] : kMemoryFields) {
    const double width = use.*field * scale;
    canvas.box({x, y + 2, width, kMemoryRow - 4}, term,
               fmt::format("{}: {} {}", name, term, bytes_text(use.*field)));
    x += width;
  }
  // The number of a bar that ends short of the limit's line must not lie on it.
  const double line = kLeft + limit * scale;
  const bool is_crossing = x < line && x + 72 > line;
  canvas.text((is_crossing ? line : x) + 6, y + 15, bytes_text(use.sum()));
  if (limit > 0) canvas.line(line, y, line, y + kMemoryRow, "limit");
}

/// A colour for each stage: the hue goes once around, lightness alternates. Dark enough for white
/// numbers.
std::string color_of(size_t stage, size_t stages) {
  constexpr double kSaturation = 0.5;
  const double hue =
      6.0 * static_cast<double>(stage) / static_cast<double>(std::max<size_t>(1, stages));
  const double light = stage % 2 == 0 ? 0.46 : 0.36;
  const double chroma = kSaturation * light;  // Half of it, as lightness is below 1/2.
  const auto part = [&](double shift) {
    const double place = std::fmod(hue + shift, 6.0);
    const double value = std::clamp(std::abs(place - 3) - 1, 0.0, 1.0);
    return static_cast<int>(std::lround(255 * (light - chroma + 2 * chroma * value)));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", part(0), part(4), part(2));
}

std::optional<size_t> stage_of_device(const std::vector<PlannedStage>& stages, uint64_t device) {
  for (size_t i = 0; i < stages.size(); ++i) {
    if (device >= stages[i].first_device && device - stages[i].first_device < stages[i].devices) {
      return i;
    }
  }
  return {};
}

/// "4", or "4-9", or nothing: the first and the last stage of a host.
std::string stages_on(const std::vector<PlannedStage>& stages, uint64_t first, uint64_t devices) {
  size_t least = stages.size();
  size_t most = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    const uint64_t begin = stages[i].first_device;
    if (begin >= first + devices || begin + stages[i].devices <= first) continue;
    least = std::min(least, i);
    most = i;
  }
  return least == stages.size() ? "" : range_text(least, most);
}

/// How hosts and their devices are laid out.
struct Grid {
  static constexpr uint64_t kMostHosts = 256;
  static constexpr uint64_t kMostSquares = 64;  ///< Of a host.
  static constexpr uint64_t kAcross = 8;        ///< Squares beside each other.

  explicit Grid(const Cluster& cluster) : hosts(cluster.host_count()) {
    uint64_t most = 1;
    for (const HostGroup& group : cluster.hosts) most = std::max<uint64_t>(most, group.devices);
    most = std::min(most, kMostSquares);
    square = hosts <= 64 ? 20 : 11;
    const double across = static_cast<double>(std::min(most, kAcross));
    const uint64_t rows = (most + kAcross - 1) / kAcross;
    const auto down = static_cast<double>(rows);
    width = std::max(84.0, across * square + 12);
    height = down * square + 26;
    columns = static_cast<uint64_t>(std::max(1.0, std::floor(kDrawingWidth / (width + 8))));
    shown = std::min(hosts, kMostHosts);
  }
  [[nodiscard]] Canvas::Box box_of(uint64_t host) const {
    const uint64_t row = host / columns;
    return {static_cast<double>(host % columns) * (width + 8),
            static_cast<double>(row) * (height + 8), width, height};
  }
  [[nodiscard]] double bottom() const {
    const uint64_t rows = (shown + columns - 1) / columns;
    return static_cast<double>(rows) * (height + 8);
  }

  uint64_t hosts;
  uint64_t shown = 0;
  uint64_t columns = 1;
  double square = 0;
  double width = 0;
  double height = 0;
};

void add_host(Canvas& canvas, const DecisionFile& file, const Grid& grid, uint32_t host,
              uint64_t first_device) {
  const auto& stages = file.decision.best.stages;
  const HostGroup& group = file.cluster.group_of(host);
  const std::string name = file.cluster.host_name(host);
  const Canvas::Box box = grid.box_of(host);
  canvas.box(box, "host", name);
  const std::string there = stages_on(stages, first_device, group.devices);
  const auto letters = static_cast<size_t>((grid.width - 12) / 6.8);
  const size_t left = letters > there.size() + 2 ? letters - there.size() - 1 : 1;
  canvas.text(box.x + 6, box.y + 14, clipped(name, left));
  canvas.text(box.x + grid.width - 6, box.y + 14, there, "note", "end");
  for (uint64_t i = 0; i < std::min<uint64_t>(group.devices, Grid::kMostSquares); ++i) {
    const auto stage = stage_of_device(stages, first_device + i);
    const uint64_t row = i / Grid::kAcross;
    const Canvas::Box square{box.x + 6 + static_cast<double>(i % Grid::kAcross) * grid.square,
                             box.y + 20 + static_cast<double>(row) * grid.square, grid.square - 2,
                             grid.square - 2};
    const std::string title = fmt::format("{}, device {}: {}", name, first_device + i,
                                          stage ? fmt::format("stage {}", *stage) : "not used");
    canvas.box(square, stage ? "device" : "device unused", title,
               stage ? color_of(*stage, stages.size()) : "");
    if (!stage || grid.square < 16 || *stage > 99) continue;
    canvas.text(square.x + square.width / 2, square.y + 13, fmt::format("{}", *stage), "in",
                "middle");
  }
}

/// Of zero bubble, backward and recompute go without the gradients of weights; the first part of a
/// step has nothing of its end.
std::vector<std::pair<std::string, std::string>> timeline_legend(bool splits, bool is_whole) {
  std::vector<std::pair<std::string, std::string>> legend = {
      {"forward", "forward"},
      {"backward", splits ? "gradients of inputs, and recompute" : "backward and recompute"}};
  if (splits) legend.emplace_back("weight_gradients", "gradients of weights");
  if (!is_whole) return legend;
  legend.emplace_back("sync", "sync");
  legend.emplace_back("update", "update");
  return legend;
}

}  // namespace

Drawing draw_timeline(const DecisionFile& file) {
  const Candidate& best = file.decision.best;
  const Timeline timeline = timeline_of(best);
  Drawing drawing{.title = "Timeline", .height = 24};
  if (timeline.blocks.empty() || !(timeline.end > 0)) {
    drawing.note = fmt::format(
        "Pipelines of more than {} stages and steps of decades are not drawn.", kMostDrawnStages);
    return drawing;
  }
  Canvas canvas;
  const double row = row_height(best.stages.size());
  add_legend(canvas, kLeft,
             timeline_legend(best.shape.schedule == Schedule::kZeroBubble, timeline.is_whole));
  const double bottom = kLegend + row * static_cast<double>(best.stages.size());
  for (size_t s = 0; s < best.stages.size(); ++s) {
    const double y = kLegend + row * static_cast<double>(s);
    canvas.box({kLeft, y + 1, kRight - kLeft, row - 2}, "idle");
    const bool has_room = row >= 12 || s % 4 == 0;
    if (has_room) canvas.text(kLeft - 8, y + row / 2 + 4, fmt::format("stage {}", s), "t", "end");
  }
  for (const Block& block : timeline.blocks) add_block(canvas, block, timeline.end, row);
  add_time_axis(canvas, bottom + 4, timeline.end);
  drawing.note = timeline.is_whole
                     ? "One step, by the cost model. Numbers are micro-batches."
                     : fmt::format(
                           "The first part of a step of {}, by the cost model. Numbers are "
                           "micro-batches, of {}.",
                           seconds_text(best.step), best.shape.micro_batches);
  if (best.shape.chunks > 1) drawing.note += " Later chunks of a stage are lighter.";
  drawing.height = bottom + 28;
  drawing.body = canvas.take();
  return drawing;
}

Drawing draw_memory(const DecisionFile& file) {
  const auto& stages = file.decision.best.stages;
  const auto groups = groups_of(file, stages);
  constexpr size_t kMostRows = 128;
  const size_t rows = std::min(groups.size(), kMostRows);
  Canvas canvas;
  std::vector<std::pair<std::string, std::string>> legend;
  for (const auto& [name, field] : kMemoryFields) legend.emplace_back(name, name);
  add_legend(canvas, kLeft, legend);
  double most = 0;
  for (const PlannedStage& stage : stages) {
    most = std::max({most, limit_of(file, stage), stage.estimate.memory.sum()});
  }
  const double scale = most > 0 ? (kRight - kLeft - 80) / most : 0;
  for (size_t i = 0; i < rows; ++i) {
    const std::string name = "stage " + range_text(groups[i].first, groups[i].last);
    const PlannedStage& stage = stages[groups[i].first];
    add_memory_bar(canvas, kLegend + kMemoryRow * static_cast<double>(i), name,
                   stage.estimate.memory, limit_of(file, stage), scale);
  }
  Drawing drawing{.title = "Memory of a device",
                  .height = kLegend + kMemoryRow * static_cast<double>(rows) + 4,
                  .body = canvas.take()};
  if (most > 0 && file.decision.memory_limit > 0) {
    const double limit = limit_of(file, stages[fullest_stage(file)]);
    drawing.note = fmt::format(
        "The dashed line is what a device may hold: {} of the fullest stage.", bytes_text(limit));
  }
  if (groups.size() < stages.size())
    drawing.note += " Neighbouring stages that hold the same share a bar.";
  if (rows < groups.size()) {
    drawing.note += fmt::format(" The first {} rows of {}.", rows, groups.size());
  }
  return drawing;
}

Drawing draw_placement(const DecisionFile& file) {
  constexpr size_t kMostStages = 4096;
  if (file.decision.best.stages.size() > kMostStages) {
    return {.title = "Stages on hosts",
            .note = fmt::format("More than {} stages are not drawn.", kMostStages),
            .height = 24};
  }
  const Grid grid(file.cluster);
  Canvas canvas;
  uint64_t device = 0;
  for (uint32_t host = 0; host < grid.shown; ++host) {
    add_host(canvas, file, grid, host, device);
    device += file.cluster.group_of(host).devices;
  }
  Drawing drawing{
      .title = "Stages on hosts",
      .note =
          "Each square is a device, in the colour of its stage; beside a host's name stand "
          "its stages.",
      .height = grid.bottom() + 2,
      .body = canvas.take()};
  if (grid.shown < grid.hosts) {
    drawing.note += fmt::format(" The first {} hosts of {}.", grid.shown, grid.hosts);
  }
  return drawing;
}

std::vector<Drawing> drawings_of(const DecisionFile& file) {
  return {draw_timeline(file), draw_memory(file), draw_placement(file)};
}

std::string decision_to_svg(const DecisionFile& file) {
  constexpr double kMargin = 20;
  double y = kMargin;
  std::string body;
  for (const Drawing& drawing : drawings_of(file)) {
    Canvas words;
    words.text(0, 14, drawing.title, "h");
    words.text(0, drawing.height + 42, clipped(drawing.note, 140), "note");
    body += fmt::format(
        "<g transform=\"translate({}, {:.1f})\">\n{}"
        "<g transform=\"translate(0, 26)\">\n{}</g>\n</g>\n",
        kMargin, y, words.take(), drawing.body);
    y += drawing.height + 70;
  }
  const double width = kDrawingWidth + 2 * kMargin;
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1:.0f}\" width=\"{0}\" "
      "height=\"{1:.0f}\" {3}>\n<title>{2}</title>\n"
      "<rect class=\"paper\" width=\"{0}\" height=\"{1:.0f}\"{4}/>\n{5}</svg>\n",
      width, y, escaped(fmt::format("{} on {}", file.model.name, file.cluster.name)),
      kFontAttributes, attributes_of("paper"), body);
}

}  // namespace corro::plan
