#include "plan/report/drawing.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "plan/report/sample_decision.h"
#include "plan/report/timeline.h"
#include "plan/search/plan_graph.h"

namespace corro::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Empty for well-formed XML as drawings have it: one root, elements closed in order, attributes in
/// quotation marks, and of `&` and `<` in text only the five entities. Else what is wrong.
std::string what_is_wrong(std::string_view xml) {
  std::vector<std::string> open;
  size_t roots = 0;
  const auto bad_text = [](std::string_view text) {
    for (size_t i = text.find('&'); i != std::string_view::npos; i = text.find('&', i + 1)) {
      constexpr std::string_view kEntities[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
      const auto is_here = [&](std::string_view entity) {
        return text.substr(i).starts_with(entity);
      };
      if (std::ranges::none_of(kEntities, is_here)) return true;
    }
    return text.find('<') != std::string_view::npos;
  };
  while (!xml.empty()) {
    const size_t begin = xml.find('<');
    if (bad_text(xml.substr(0, begin))) return "bad text";
    if (begin == std::string_view::npos) break;
    const size_t end = xml.find('>', begin);
    if (end == std::string_view::npos) return "a tag has no end";
    std::string_view tag = xml.substr(begin + 1, end - begin - 1);
    xml.remove_prefix(end + 1);
    if (bad_text(tag) || std::ranges::count(tag, '"') % 2 != 0)
      return "bad tag " + std::string(tag);
    const std::string name(tag.substr(0, tag.find_first_of(" /\n", 1)));
    if (name.starts_with('/')) {
      if (open.empty() || open.back() != name.substr(1)) return "closes " + name;
      open.pop_back();
    } else if (!tag.ends_with('/')) {
      if (open.empty()) ++roots;
      open.push_back(name);
    }
  }
  if (!open.empty()) return "does not close " + open.back();
  return roots == 1 ? "" : "has no root or several";
}

constexpr std::string_view kEvil = "<script>alert('1')</script>&<b";

DecisionFile evil_file() {
  DecisionFile file = sample_file();
  file.model.name = kEvil;
  for (LayerSummary& run : file.model.layers) run.name = kEvil;
  file.cluster.name = kEvil;
  for (DeviceType& type : file.cluster.types) type.name = kEvil;
  for (HostGroup& group : file.cluster.hosts) group.name = kEvil;
  file.decision.why = kEvil;
  file.decision.limit = kEvil;
  return file;
}

size_t count_of(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(Svg, IsWellFormed) {
  EXPECT_EQ(what_is_wrong(decision_to_svg(sample_file())), "");
  EXPECT_EQ(what_is_wrong(decision_to_svg(evil_file())), "");
  EXPECT_EQ(what_is_wrong(decision_to_svg({})), "");
  EXPECT_NE(what_is_wrong("<svg><g></svg>"), "");
  EXPECT_NE(what_is_wrong("<svg>a & b</svg>"), "");
}

/// Editors, slides and converters know no rules of style sheets, or few.
TEST(Svg, HasItsColoursAsAttributes) {
  const std::string svg = decision_to_svg(sample_file());
  for (const char* part : {"var(", "<style", "@media", "currentColor"})
    EXPECT_THAT(svg, Not(HasSubstr(part)));
  for (size_t at = 0; (at = svg.find('<', at)) != std::string::npos; ++at) {
    const std::string_view tag = std::string_view(svg).substr(at, svg.find('>', at) - at);
    if (tag.starts_with("<line")) {
      EXPECT_THAT(tag, HasSubstr(" stroke=\"#"));
    }
    if (!tag.starts_with("<rect") && !tag.starts_with("<text")) continue;
    EXPECT_EQ(count_of(tag, " fill=\""), 1U) << tag;
  }
  EXPECT_THAT(svg, HasSubstr("font-family="));
  EXPECT_THAT(decision_to_html(sample_file()), Not(HasSubstr("var(")));
}

TEST(Html, EscapesEveryName) {
  const std::string html = decision_to_html(evil_file());
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("<b<")));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(&#39;1&#39;)"));
}

TEST(Html, NeedsNothingFromElsewhere) {
  const std::string html = decision_to_html(sample_file());
  for (const char* part : {"http:", "https:", "src=", "href=", "@import", "url("}) {
    EXPECT_THAT(html, Not(HasSubstr(part)));
  }
  EXPECT_EQ(count_of(html, "<svg "), 3U);
  EXPECT_EQ(count_of(html, "<h2>"), 4U);
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme: dark"));
}

TEST(Memory, HasABarForEachTermAndTheLimit) {
  const Drawing drawing = draw_memory(sample_file());
  EXPECT_EQ(count_of(drawing.body, "class=\"activations\""), 4U + 1U);
  EXPECT_EQ(count_of(drawing.body, "class=\"limit\""), 4U);
  EXPECT_THAT(drawing.body, HasSubstr("<title>stage 0: activations 7.45 GiB</title>"));
}

TEST(Memory, SaysThatEqualStagesShareABar) {
  DecisionFile file = sample_file();
  EXPECT_THAT(draw_memory(file).note, Not(HasSubstr("share a bar")));
  for (PlannedStage& stage : file.decision.best.stages) {
    const PlannedStage& first = file.decision.best.stages.front();
    stage.estimate = first.estimate;
    stage.layers.end = stage.layers.begin + first.layers.end - first.layers.begin;
    stage.type = first.type;
    stage.recompute = first.recompute;
    stage.memory_limit = first.memory_limit;
    stage.devices = first.devices;
  }
  const Drawing drawing = draw_memory(file);
  EXPECT_LT(count_of(drawing.body, "class=\"limit\""), 4U);
  EXPECT_THAT(drawing.note, HasSubstr("Neighbouring stages that hold the same share a bar."));
}

TEST(Placement, HasASquareForEachDevice) {
  DecisionFile file = sample_file();
  EXPECT_EQ(count_of(draw_placement(file).body, "class=\"device\""), 16U);
  file.decision.best.stages.pop_back();
  const std::string body = draw_placement(file).body;
  EXPECT_EQ(count_of(body, "class=\"device\""), 12U);
  EXPECT_EQ(count_of(body, "class=\"device unused\""), 4U);
  EXPECT_THAT(body, HasSubstr("<title>old, device 11: stage 2</title>"));
  EXPECT_THAT(body, HasSubstr("<title>big2, device 4: stage 1</title>"));
}

TEST(Placement, DrawsAtMostSoManyHosts) {
  DecisionFile file = sample_file();
  file.cluster.hosts = {{.name = "node", .count = 100'000, .devices = 8}};
  const Drawing drawing = draw_placement(file);
  EXPECT_EQ(count_of(drawing.body, "class=\"host\""), 256U);
  EXPECT_THAT(drawing.note, HasSubstr("The first 256 hosts of 100000."));
}

Candidate candidate_of(JobShape shape) {
  Candidate candidate{.shape = shape};
  candidate.stages.resize(shape.pipeline);
  for (PlannedStage& stage : candidate.stages) stage.estimate = {.forward = 1, .backward = 2};
  return candidate;
}

TEST(Timeline, OfEqualStagesTakesWhatTheFormulaSays) {
  for (const uint32_t stages : {1U, 2U, 4U, 7U}) {
    for (const uint32_t micro_batches : {1U, 3U, 8U, 20U}) {
      const Timeline timeline =
          timeline_of(candidate_of({.pipeline = stages, .micro_batches = micro_batches}));
      EXPECT_TRUE(timeline.is_whole);
      EXPECT_DOUBLE_EQ(timeline.end, 3 * (micro_batches + stages - 1)) << stages;
      EXPECT_EQ(timeline.blocks.size(), size_t{2} * stages * micro_batches);
    }
  }
}

TEST(Timeline, OfGPipeTakesAsLong) {
  const Timeline timeline =
      timeline_of(candidate_of({.pipeline = 4, .micro_batches = 8, .schedule = Schedule::kGPipe}));
  EXPECT_DOUBLE_EQ(timeline.end, 3 * (8 + 3));
}

/// Nothing goes backward before all has gone forward, also where the first part alone is shown.
TEST(Timeline, OfALongGPipeStepGoesForwardFirst) {
  for (const uint32_t micro_batches : {30U, 64U, 256U, 1U << 20U}) {
    const Timeline timeline = timeline_of(candidate_of(
        {.pipeline = 4, .micro_batches = micro_batches, .schedule = Schedule::kGPipe}));
    EXPECT_FALSE(timeline.is_whole);
    const auto backward = std::ranges::count(timeline.blocks, Work::kBackward, &Block::work);
    EXPECT_EQ(backward > 0, micro_batches <= 256) << micro_batches;
    for (const Block& block : timeline.blocks) {
      if (block.work == Work::kForward) continue;
      EXPECT_GE(block.start, micro_batches) << micro_batches;
    }
  }
}

TEST(Timeline, ChunksDivideTheFill) {
  const Timeline timeline = timeline_of(candidate_of(
      {.pipeline = 4, .micro_batches = 8, .chunks = 2, .schedule = Schedule::kInterleaved}));
  EXPECT_TRUE(timeline.is_whole);
  EXPECT_DOUBLE_EQ(timeline.end, 3 * 8 + 3 * 3 / 2.0);
}

TEST(Timeline, NoStageDoesTwoThingsAtATimeOrBeforeItsTurn) {
  for (const uint32_t chunks : {1U, 3U}) {
    const JobShape shape{
        .pipeline = 4, .micro_batches = 8, .chunks = chunks, .schedule = Schedule::kInterleaved};
    Candidate candidate = candidate_of(shape);
    for (uint32_t s = 0; s < 4; ++s) candidate.stages[s].estimate.forward = 1 + 0.3 * s;
    const Timeline timeline = timeline_of(candidate);
    std::vector<double> free(4);
    for (const Block& block : timeline.blocks) {
      EXPECT_GE(block.start, free[block.stage]);
      free[block.stage] = block.end;
      if (block.work != Work::kForward || block.stage == 0) continue;
      const auto before = std::ranges::find_if(timeline.blocks, [&](const Block& other) {
        return other.work == block.work && other.stage + 1 == block.stage &&
               other.chunk == block.chunk && other.micro_batch == block.micro_batch;
      });
      ASSERT_NE(before, timeline.blocks.end());
      EXPECT_GE(block.start, before->end);
    }
  }
}

TEST(Timeline, EveryStageHasEachPieceOnceForwardBeforeBackward) {
  for (const uint32_t chunks : {1U, 2U, 3U}) {
    const JobShape shape{
        .pipeline = 3, .micro_batches = 6, .chunks = chunks, .schedule = Schedule::kInterleaved};
    for (uint32_t stage = 0; stage < 3; ++stage) {
      std::vector<Turn> seen;
      for (const Turn& turn : turns_of(shape, stage)) {
        EXPECT_EQ(std::ranges::count(seen, turn), 0);
        if (turn.work == Work::kBackward) {
          EXPECT_EQ(std::ranges::count(seen, Turn{Work::kForward, turn.chunk, turn.micro_batch}),
                    1);
        }
        seen.push_back(turn);
      }
      EXPECT_EQ(seen.size(), 2U * 6 * chunks);
    }
  }
}

TEST(Timeline, OfALongStepShowsItsFirstPart) {
  const Timeline timeline = timeline_of(candidate_of({.pipeline = 4, .micro_batches = 1U << 20U}));
  EXPECT_FALSE(timeline.is_whole);
  EXPECT_GT(timeline.end, 0);
  for (const Block& block : timeline.blocks) EXPECT_LT(block.start, timeline.end);
  EXPECT_LT(timeline.blocks.size(), 200U);
}

TEST(Timeline, EndsWithSyncAndUpdate) {
  Candidate candidate = candidate_of({.pipeline = 2, .micro_batches = 2});
  candidate.stages[0].estimate.sync = 5;
  candidate.stages[0].estimate.update = 1;
  EXPECT_DOUBLE_EQ(timeline_of(candidate).end, 9 + 6);
}

Candidate split_candidate(uint32_t stages, uint32_t micro_batches) {
  Candidate candidate = candidate_of(
      {.pipeline = stages, .micro_batches = micro_batches, .schedule = Schedule::kZeroBubble});
  for (uint32_t s = 0; s < stages; ++s) {
    candidate.stages[s].devices = 1;
    candidate.stages[s].estimate.forward = 1 + 0.1 * s;
    candidate.stages[s].estimate.weight_part = 0.9;
  }
  return candidate;
}

TEST(Timeline, OfZeroBubbleIsTheSimulatedSchedule) {
  for (const uint32_t stages : {2U, 4U, 7U}) {
    for (const uint32_t micro_batches : {1U, 8U, 20U}) {
      Candidate candidate = split_candidate(stages, micro_batches);
      const Timeline timeline = timeline_of(candidate);
      EXPECT_TRUE(timeline.is_whole);
      EXPECT_NEAR(timeline.end, simulate(candidate).value(), 1e-9);
      for (const Work work : {Work::kForward, Work::kBackward, Work::kWeightGradients}) {
        EXPECT_EQ(std::ranges::count(timeline.blocks, work, &Block::work), stages * micro_batches);
      }
    }
  }
}

TEST(Timeline, OfZeroBubbleHasEachPieceInItsPlace) {
  const Timeline timeline = timeline_of(split_candidate(4, 12));
  const auto find = [&](Work work, uint32_t stage, uint32_t micro_batch) {
    return *std::ranges::find_if(timeline.blocks, [&](const Block& block) {
      return block.work == work && block.stage == stage && block.micro_batch == micro_batch;
    });
  };
  for (uint32_t s = 0; s < 4; ++s) {
    double busy = 0;
    double first = 1e9;
    double last = 0;
    for (uint32_t i = 0; i < 12; ++i) {
      const Block forward = find(Work::kForward, s, i);
      const Block backward = find(Work::kBackward, s, i);
      const Block weights = find(Work::kWeightGradients, s, i);
      EXPECT_NEAR(forward.end - forward.start, 1 + 0.1 * s, 1e-6);
      EXPECT_NEAR(backward.end - backward.start, 1.1, 1e-6);
      EXPECT_NEAR(weights.end - weights.start, 0.9, 1e-6);
      EXPECT_GE(backward.start, forward.end);
      EXPECT_GE(weights.start, backward.end);
      if (s > 0) {
        EXPECT_GE(forward.start, find(Work::kForward, s - 1, i).end);
        EXPECT_GE(find(Work::kBackward, s - 1, i).start, backward.end);
      }
      busy +=
          forward.end - forward.start + backward.end - backward.start + weights.end - weights.start;
      first = std::min(first, forward.start);
      last = std::max(last, weights.end);
    }
    EXPECT_LE(busy, last - first + 1e-6) << "a stage does one thing at a time";
  }
}

TEST(Timeline, OfALongZeroBubbleStepShowsItsFirstPart) {
  const Timeline timeline = timeline_of(split_candidate(4, 1U << 20U));
  EXPECT_FALSE(timeline.is_whole);
  EXPECT_GT(std::ranges::count(timeline.blocks, Work::kWeightGradients, &Block::work), 0);
  EXPECT_LT(timeline.blocks.size(), 300U);
}

TEST(Timeline, OfZeroBubbleIsThatOfItsFileToo) {
  DecisionFile file = sample_file();
  file.decision.best.shape.schedule = Schedule::kZeroBubble;
  for (PlannedStage& stage : file.decision.best.stages)
    stage.estimate.weight_part = stage.estimate.backward / 3;
  const std::string text = decision_to_json(file).value();
  EXPECT_EQ(draw_timeline(read_decision(text, "plan.json").value()).body, draw_timeline(file).body);
  file.decision.best.stages[0].estimate.forward = 1e30;
  EXPECT_THAT(draw_timeline(file).note, HasSubstr("steps of decades are not drawn"));
}

TEST(Timeline, DrawsTheThreePiecesOfZeroBubble) {
  DecisionFile file = sample_file();
  file.decision.best.shape.schedule = Schedule::kZeroBubble;
  file.decision.best.shape.chunks = 1;
  for (PlannedStage& stage : file.decision.best.stages)
    stage.estimate.weight_part = stage.estimate.backward / 2;
  const Drawing drawing = draw_timeline(file);
  for (const char* css : {"forward", "backward", "weight_gradients"})
    EXPECT_GT(count_of(drawing.body, fmt::format("<rect class=\"{} c0\"", css)), 4U) << css;
  EXPECT_THAT(drawing.body, HasSubstr(">gradients of weights</text>"));
  EXPECT_THAT(drawing.body, HasSubstr("<title>stage 0: gradients of weights of micro-batch 0, "));
}

TEST(Timeline, HasNoBlocksForMoreStagesThanAreDrawn) {
  EXPECT_TRUE(timeline_of(candidate_of({.pipeline = kMostDrawnStages + 1})).blocks.empty());
  EXPECT_FALSE(timeline_of(candidate_of({.pipeline = kMostDrawnStages})).blocks.empty());
}

}  // namespace
}  // namespace corro::plan
