#include "plan/report/megatron.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "plan/report/sample_decision.h"

namespace corro::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// The sample with all stages alike, so that Megatron can do all of it.
DecisionFile even_file() {
  DecisionFile file = sample_file();
  for (PlannedStage& stage : file.decision.best.stages) {
    stage.recompute[1] = {3, 0, 0};
    stage.type = 0;
  }
  return file;
}

void set_layers(DecisionFile& file, std::array<uint32_t, 4> blocks) {
  uint32_t next = 0;
  for (size_t s = 0; s < 4; ++s) {
    PlannedStage& stage = file.decision.best.stages[s];
    const uint32_t others = (s == 0 ? 1U : 0U) + (s == 3 ? 1U : 0U);
    stage.layers = {next, next + blocks[s] + others};
    stage.recompute[1] = {blocks[s], 0, 0};
    next = stage.layers.end;
  }
}

TEST(Megatron, WhatItCanDoIsFlagsAlone) {
  EXPECT_EQ(export_megatron(even_file()),
            "# Megatron Core 0.20: gpt-small on lab, 16 devices\n"
            "# Add the model's own flags: hidden size, heads, vocabulary, data.\n"
            "--num-layers 12\n"
            "--seq-length 1024\n"
            "--tensor-model-parallel-size 2\n"
            "--pipeline-model-parallel-size 4\n"
            "--context-parallel-size 1\n"
            "--sequence-parallel\n"
            "--micro-batch-size 2\n"
            "--global-batch-size 64\n"
            "--use-distributed-optimizer\n"
            "--overlap-grad-reduce\n"
            "--overlap-param-gather\n"
            "--bf16\n");
}

TEST(Megatron, EveryLineIsAFlagOrAComment) {
  DecisionFile file = sample_file();
  for (uint32_t zero = 0; zero <= 3; ++zero) {
    for (const uint32_t chunks : {1U, 2U, 3U}) {
      file.decision.best.shape.zero = zero;
      file.decision.best.shape.chunks = chunks;
      file.decision.best.shape.offload = static_cast<Offload>(chunks);
      std::istringstream text(export_megatron(file));
      for (std::string line; std::getline(text, line);) {
        EXPECT_TRUE(line.starts_with("--") || line.starts_with("# ")) << line;
      }
    }
  }
}

TEST(Megatron, InterleavesByLayersOfAChunk) {
  DecisionFile file = even_file();
  file.decision.best.shape.chunks = 3;
  EXPECT_THAT(export_megatron(file), HasSubstr("--num-layers-per-virtual-pipeline-stage 1\n"));
  file.decision.best.shape.chunks = 2;
  EXPECT_THAT(export_megatron(file), HasSubstr("--pipeline-model-parallel-layout "
                                               "'Et*2|t*2|t*2|t*2|t*1|t*1|t*1|t*1L'\n"));
  set_layers(file, {2, 4, 4, 2});
  EXPECT_THAT(export_megatron(file), HasSubstr("--decoder-first-pipeline-num-layers 2\n"
                                               "--decoder-last-pipeline-num-layers 2\n"
                                               "--num-virtual-stages-per-pipeline-rank 2\n"));
  file.decision.best.shape.micro_batches = 6;
  EXPECT_THAT(export_megatron(file), HasSubstr("# Megatron interleaves multiples of 4"));
}

TEST(Megatron, UnevenStagesAreFirstAndLastOrALayout) {
  DecisionFile file = even_file();
  set_layers(file, {2, 4, 4, 2});
  EXPECT_THAT(export_megatron(file), HasSubstr("--decoder-first-pipeline-num-layers 2\n"
                                               "--decoder-last-pipeline-num-layers 2\n"));
  set_layers(file, {2, 3, 4, 3});
  EXPECT_THAT(export_megatron(file),
              HasSubstr("--pipeline-model-parallel-layout 'Et*2|t*3|t*4|t*3L'\n"));
  set_layers(file, {0, 4, 4, 4});
  EXPECT_THAT(export_megatron(file),
              HasSubstr("--pipeline-model-parallel-layout 'E|t*4|t*4|t*4L'\n"));
}

TEST(Megatron, CountsABucketInElements) {
  DecisionFile file = even_file();
  EXPECT_THAT(export_megatron(file), Not(HasSubstr("ddp-bucket-size")));
  for (PlannedStage& stage : file.decision.best.stages) stage.estimate.bucket = 4e6;
  EXPECT_THAT(export_megatron(file), HasSubstr("--ddp-bucket-size 1000000\n"));
}

TEST(Megatron, SaysWhatLiesElsewhere) {
  DecisionFile file = even_file();
  file.decision.best.stages[0].recompute[1] = {1, 0, 0, 2};
  EXPECT_THAT(export_megatron(file),
              HasSubstr("# Not expressed: activations of 2 layers go to host memory."));
  file.decision.best.placement = {4, 5, 6, 7, 0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15};
  EXPECT_THAT(export_megatron(file),
              HasSubstr("# ranks 0-3: devices 4-7\n# ranks 4-7: devices 0-3\n# ranks 8-15: "
                        "devices 8-15\n"));
}

TEST(Megatron, RecomputesAsThePlanOrMore) {
  const auto exported = [](std::array<std::array<uint32_t, kRecomputeCount>, 4> counts) {
    DecisionFile file = even_file();
    for (size_t s = 0; s < 4; ++s) file.decision.best.stages[s].recompute[1] = counts[s];
    return export_megatron(file);
  };
  const std::string attention = exported({{{0, 3, 0}, {0, 3, 0}, {0, 3, 0}, {0, 3, 0}}});
  EXPECT_THAT(attention, HasSubstr("--recompute-granularity selective\n"));
  EXPECT_THAT(attention, Not(HasSubstr("stage by stage")));
  const std::string full = exported({{{0, 0, 3}, {0, 0, 3}, {0, 0, 3}, {0, 0, 3}}});
  EXPECT_THAT(full, HasSubstr("--recompute-granularity full\n--recompute-method uniform\n"
                              "--recompute-num-layers 1\n"));
  const std::string two = exported({{{1, 0, 2}, {1, 0, 2}, {1, 0, 2}, {1, 0, 2}}});
  EXPECT_THAT(two, HasSubstr("--recompute-method block\n--recompute-num-layers 2\n"));
  EXPECT_THAT(two, Not(HasSubstr("stage by stage")));
  const std::string uneven = exported({{{1, 0, 2}, {2, 0, 1}, {3, 0, 0}, {3, 0, 0}}});
  EXPECT_THAT(uneven, HasSubstr("# The plan recomputes full in 3 of 14 layers, stage by stage."));
  EXPECT_THAT(uneven, HasSubstr("--recompute-num-layers 2\n"));
  const std::string some = exported({{{0, 3, 0}, {3, 0, 0}, {3, 0, 0}, {3, 0, 0}}});
  EXPECT_THAT(some, HasSubstr("stage by stage"));
  EXPECT_THAT(some, HasSubstr("--recompute-granularity selective\n"));
}

TEST(Megatron, ShardsAsZeroSays) {
  DecisionFile file = even_file();
  JobShape& shape = file.decision.best.shape;
  shape.zero = 0;
  EXPECT_THAT(export_megatron(file), Not(HasSubstr("--use-distributed-optimizer")));
  shape.zero = 3;
  EXPECT_THAT(export_megatron(file),
              HasSubstr("--use-distributed-optimizer\n--use-megatron-fsdp\n"
                        "--data-parallel-sharding-strategy optim_grads_params\n"));
  shape.zero = 2;
  shape.overlap = false;
  shape.offload = Offload::kOptimizer;
  EXPECT_THAT(export_megatron(file), HasSubstr("--data-parallel-sharding-strategy optim_grads\n"
                                               "--optimizer-cpu-offload\n"
                                               "--use-precision-aware-optimizer\n"));
}

TEST(Megatron, SumsGradientsUpInThePlansDtype) {
  const auto flags = [](DType dtype, DType gradients) {
    DecisionFile file = even_file();
    file.decision.best.shape.dtype = dtype;
    file.decision.best.shape.gradient_dtype = gradients;
    const std::string text = export_megatron(file);
    return text.substr(text.find("--overlap-param-gather\n") + 23);
  };
  EXPECT_EQ(flags(DType::kBF16, DType::kF32), "--bf16\n");
  EXPECT_EQ(flags(DType::kBF16, DType::kBF16), "--bf16\n--grad-reduce-in-bf16\n");
  EXPECT_EQ(flags(DType::kF16, DType::kF32), "--fp16\n--accumulate-allreduce-grads-in-fp32\n");
  EXPECT_EQ(flags(DType::kF16, DType::kF16), "--fp16\n");
}

TEST(Megatron, SaysWhatItCannotDo) {
  DecisionFile file = even_file();
  file.decision.best.shape.schedule = Schedule::kGPipe;
  file.decision.best.shape.dtype = DType::kF64;
  file.decision.best.stages[3].type = 1;
  std::swap(file.decision.best.stages[0].first_device, file.decision.best.stages[1].first_device);
  file.decision.best.stages[0].recompute[0] = {0, 0, 1};
  for (LayerSummary& run : file.model.layers) run.attention = false;
  const std::string text = export_megatron(file);
  EXPECT_THAT(text, HasSubstr("# The plan's schedule is GPipe"));
  EXPECT_THAT(text, HasSubstr("# Not expressed: dtype f64."));
  EXPECT_THAT(text, HasSubstr("# Stages lie on devices of several types"));
  EXPECT_THAT(text, HasSubstr("# stage 0: devices 4 to 7\n"));
  EXPECT_THAT(text, HasSubstr("# This model has no layer with attention"));
  EXPECT_THAT(text, HasSubstr("--num-layers 14\n"));
  file.model.layers[1].attention = true;
  EXPECT_THAT(export_megatron(file),
              HasSubstr("# Not expressed: recompute in layers that are no transformer layers."));
}

TEST(Megatron, NamesExperts) {
  DecisionFile file = even_file();
  file.model.layers[1].experts = 8;
  file.decision.best.shape.expert = 2;
  EXPECT_THAT(export_megatron(file),
              HasSubstr("--num-experts 8\n--expert-model-parallel-size 2\n"));
}

TEST(Megatron, OfNothingIsNoCrash) { EXPECT_FALSE(export_megatron({}).empty()); }

}  // namespace
}  // namespace corro::plan
