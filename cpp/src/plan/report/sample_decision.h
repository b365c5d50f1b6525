// A decision made by hand, for tests: a small GPT over two hosts of two kinds, four stages.
#pragma once

#include <chrono>

#include <fmt/format.h>

#include "plan/model/transformer.h"
#include "plan/report/decision_file.h"

namespace corro::plan {

inline Model sample_model() {
  return make_transformer({.name = "gpt-small",
                           .layers = 12,
                           .hidden = 768,
                           .heads = 12,
                           .vocabulary = 50257,
                           .sequence = 1024});
}

inline Cluster sample_cluster() {
  Cluster cluster{.name = "lab"};
  cluster.types = {{.name = "A100-80GB", .memory = 80e9, .price = 2},
                   {.name = "V100-32GB", .memory = 32e9, .price = 1}};
  cluster.types[0].peak[static_cast<size_t>(DType::kBF16)] = 312e12;
  cluster.types[1].peak[static_cast<size_t>(DType::kF16)] = 125e12;
  cluster.hosts = {{.name = "big", .count = 2, .type = 0, .devices = 4, .first = 1},
                   {.name = "old", .count = 1, .type = 1, .devices = 8}};
  return cluster;
}

inline PlannedStage sample_stage(uint32_t stage) {
  constexpr LayerRange kLayers[] = {{0, 4}, {4, 7}, {7, 10}, {10, 14}};
  PlannedStage planned{.layers = kLayers[stage],
                       .first_device = 4 * stage,
                       .devices = 4,
                       .type = stage < 2 ? 0U : 1U};
  const uint32_t blocks = 3;
  planned.recompute = {
      {stage == 0 ? 1U : 0U, 0, 0}, {0, blocks - 1, 1}, {stage == 3 ? 1U : 0U, 0, 0}};
  planned.estimate = {.forward = 0.010,
                      .backward = 0.020,
                      .recompute = 0.003,
                      .exchanges = 0.004,
                      .hops = stage < 3 ? 0.001 : 0.0005,
                      .sync = 0.006,
                      .update = 0.002,
                      .memory = {.weights = 1.5e9,
                                 .gradients = 3e9,
                                 .optimizer = 4.5e9,
                                 .activations = 2e9 * (4 - stage),
                                 .transient = 0.5e9}};
  return planned;
}

/// F and B of each stage, one micro-batch a generation.
inline graph::Plan sample_graph() {
  graph::Plan plan;
  plan.ranks = 4;
  for (uint32_t s = 0; s < 4; ++s) {
    const graph::LaneId lane = plan.add_lane({.name = fmt::format("stage{}", s), .ranks = {s}});
    plan.add_channel({.name = fmt::format("stash{}", s), .slots = 4 - s, .slot_bytes = 1U << 20U});
    plan.add_service({.name = fmt::format("F{}", s),
                      .lane = lane,
                      .priority = 1,
                      .duration = std::chrono::milliseconds(10),
                      .outputs = {s}});
    plan.add_service({.name = fmt::format("B{}", s),
                      .lane = lane,
                      .duration = std::chrono::milliseconds(23),
                      .inputs = {s}});
  }
  return plan;
}

inline Candidate sample_candidate() {
  Candidate candidate;
  candidate.shape = {.tensor = 2,
                     .data = 2,
                     .pipeline = 4,
                     .micro_batch = 2,
                     .micro_batches = 16,
                     .zero = 1,
                     .sequence_parallel = true};
  for (uint32_t stage = 0; stage < 4; ++stage) candidate.stages.push_back(sample_stage(stage));
  candidate.terms = {.compute = 0.416,
                     .recompute = 0.048,
                     .exchanges = 0.064,
                     .hops = 0.016,
                     .bubble = 0.0995,
                     .sync = 0.006,
                     .update = 0.002};
  candidate.step = candidate.terms.sum();
  candidate.simulated = 0.655;
  candidate.price = 0.0044;
  return candidate;
}

inline Decision sample_decision() {
  Decision decision;
  decision.best = sample_candidate();
  decision.runner_up = sample_candidate();
  decision.runner_up->shape.tensor = 1;
  decision.runner_up->shape.data = 4;
  decision.runner_up->shape.micro_batches = 8;
  decision.runner_up->terms.exchanges += 0.05;
  decision.runner_up->step = decision.runner_up->terms.sum();
  decision.why =
      "Two tensor-parallel ranks halve the weights of a device, and the pipeline fills "
      "with half as many micro-batches.";
  decision.limit = "memory of stage 0";
  decision.bound = 0.63;
  decision.gap = 1 - 0.63 / decision.best.step;
  decision.memory_proof = 17'500'000'000;
  decision.memory_limit = 30e9;
  decision.global_batch = 64;
  decision.hours = 75;
  decision.cost = 1800;
  decision.eta = 0.31;
  decision.lambda = 200e3;
  decision.shapes = 321;
  decision.exact = 64;
  decision.graph = sample_graph();
  return decision;
}

inline DecisionFile sample_file() {
  return make_decision_file(sample_decision(), sample_model(), sample_cluster());
}

}  // namespace corro::plan
