// plan_corro: plans on real ranks, each case as one JSON line of rank 0.
//
//   plan_corro pipeline CREDITS DELAY ROUNDS    8 micro-batches through a stage on each rank.
//                                               CREDITS: slots of each stage's stash, "4,3,2,1". A
//                                               forward takes a unit of 10 ms, a backward two, a
//                                               link DELAY units
//   plan_corro firing ROUNDS                    a token between two ranks: one firing and its way
//
// Computing is replaced by waits. Times are of the slowest rank, medians of ROUNDS steps.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "bench/run_op.h"
#include "corro/corro.h"

namespace {

using Clock = std::chrono::steady_clock;
using Unit = std::chrono::duration<double, std::milli>;

constexpr Unit kUnit{10};
constexpr uint32_t kMicroBatches = 8;
constexpr uint32_t kTurns = 20'000;

void check(corro_code code, const corro_error& error) {
  if (code == CORRO_OK) return;
  std::fprintf(stderr, "%s\n", error.message);
  std::exit(1);
}

/// A plan that grows by names, as corro.h wants it.
class PlanBuilder {
 public:
  uint32_t lane(const std::string& name, uint32_t rank) {
    const uint32_t* ranks = &ranks_.emplace_back(rank);
    lanes_.push_back({text(name), CORRO_ORDER_PRIORITY, 1, ranks, 1});
    return static_cast<uint32_t>(lanes_.size() - 1);
  }
  uint32_t channel(const std::string& name, uint32_t slots, uint32_t initial = 0) {
    channels_.push_back({text(name), slots, initial, 0, 0});
    return static_cast<uint32_t>(channels_.size() - 1);
  }
  /// Returns its number; `waits` is how long its firings take.
  uint32_t service(const std::string& name, uint32_t lane, int32_t priority, Unit waits,
                   std::vector<uint32_t> inputs, std::vector<uint32_t> outputs) {
    const auto& in = ends_.emplace_back(std::move(inputs));
    const auto& out = ends_.emplace_back(std::move(outputs));
    corro_plan_service& service = services_.emplace_back();
    service = {};
    service.name = text(name);
    service.lane = lane;
    service.priority = priority;
    service.inputs = in.data();
    service.input_count = in.size();
    service.outputs = out.data();
    service.output_count = out.size();
    waits_.push_back(waits);
    return static_cast<uint32_t>(services_.size() - 1);
  }

  corro_plan* load(corro_group* group) {
    corro_plan_spec spec = {};
    spec.struct_size = sizeof spec;
    spec.ranks = static_cast<uint32_t>(corro_group_size(group));
    spec.lanes = lanes_.data();
    spec.lane_count = lanes_.size();
    spec.channels = channels_.data();
    spec.channel_count = channels_.size();
    spec.services = services_.data();
    spec.service_count = services_.size();
    corro_error error = {};
    corro_plan* plan = nullptr;
    check(corro_plan_load(group, &spec, nullptr, &plan, &error), error);
    return plan;
  }
  [[nodiscard]] size_t lanes() const { return lanes_.size(); }
  [[nodiscard]] uint32_t services_on(uint32_t lane) const {
    return static_cast<uint32_t>(std::count_if(services_.begin(), services_.end(),
                                               [&](auto& one) { return one.lane == lane; }));
  }
  [[nodiscard]] Unit wait_of(uint32_t service) const { return waits_[service]; }

 private:
  const char* text(const std::string& name) { return names_.emplace_back(name).c_str(); }

  std::deque<std::string> names_;
  std::deque<uint32_t> ranks_;
  std::deque<std::vector<uint32_t>> ends_;
  std::vector<corro_plan_lane> lanes_;
  std::vector<corro_plan_channel> channels_;
  std::vector<corro_plan_service> services_;
  std::vector<Unit> waits_;
};

/// The way from one stage's service to the next one's: a channel between the ranks, behind a link
/// of its own on the sender's rank if that takes time.
uint32_t connect(PlanBuilder& plan, const std::string& name, uint32_t from, Unit delay,
                 std::vector<uint32_t>& outputs) {
  const uint32_t near_end = plan.channel(name, 2);
  outputs.push_back(near_end);
  if (delay == Unit::zero()) return near_end;
  const uint32_t link = plan.lane(name + ".link", from);
  const uint32_t arrived = plan.channel(name + ".arrived", 2);
  plan.service(name + ".send", link, 0, delay, {near_end}, {arrived});
  return arrived;
}

void make_pipeline(PlanBuilder& plan, const std::vector<uint32_t>& credits, Unit delay) {
  const auto stages = static_cast<uint32_t>(credits.size());
  struct Ends {
    std::vector<uint32_t> in, out;
  };
  std::vector<Ends> forward(stages);
  std::vector<Ends> backward(stages);
  for (uint32_t i = 0; i < stages; ++i) plan.lane("stage" + std::to_string(i), i);
  for (uint32_t i = 0; i < stages; ++i) {
    const uint32_t stash = plan.channel("stash" + std::to_string(i), credits[i]);
    forward[i].out.push_back(stash);
    backward[i].in.push_back(stash);
    if (i + 1 == stages) break;
    const std::string number = std::to_string(i);
    forward[i + 1].in.push_back(connect(plan, "activation" + number, i, delay, forward[i].out));
    backward[i].in.push_back(connect(plan, "gradient" + number, i + 1, delay, backward[i + 1].out));
  }
  for (uint32_t i = 0; i < stages; ++i) {
    plan.service("F" + std::to_string(i), i, 1, kUnit, forward[i].in, forward[i].out);
    plan.service("B" + std::to_string(i), i, 0, 2 * kUnit, backward[i].in, backward[i].out);
  }
}

void sleep_for(Unit time) {
  if (time > Unit::zero()) std::this_thread::sleep_for(time);
}

void serve(const PlanBuilder& built, corro_lane* lane, uint32_t firings) {
  corro_error error = {};
  for (uint32_t i = 0; i < firings; ++i) {
    corro_firing firing = {};
    check(corro_lane_next(lane, &firing, -1, &error), error);
    sleep_for(built.wait_of(firing.service));
    check(corro_firing_done(&firing, CORRO_OK, nullptr, &error), error);
  }
}

/// Runs `micros` more micro-batches: a thread for each lane of this rank but the first.
void run_step(const PlanBuilder& built, corro_plan* plan, uint32_t until, uint32_t micros) {
  corro_error error = {};
  corro_work* work = nullptr;
  check(corro_plan_run(plan, until, &work, &error), error);
  std::vector<std::thread> threads;
  corro_lane* own = nullptr;
  uint32_t own_firings = 0;
  for (uint32_t i = 0; i < built.lanes(); ++i) {
    corro_lane* lane = corro_plan_lane_of(plan, i);
    if (lane == nullptr) continue;
    const uint32_t firings = micros * built.services_on(i);
    if (own == nullptr) {
      own = lane;
      own_firings = firings;
    } else {
      threads.emplace_back([&built, lane, firings] { serve(built, lane, firings); });
    }
  }
  if (own != nullptr) serve(built, own, own_firings);
  for (std::thread& thread : threads) thread.join();
  check(corro_work_wait(work, -1, &error), error);
  corro_work_release(work);
}

void barrier(corro_engine* engine) {
  corro_error error = {};
  corro_op op = {};
  op.struct_size = sizeof op;
  op.kind = CORRO_BARRIER;
  check(corro::bench::run_op(engine, op, &error), error);
}

/// Prints the median time of `rounds` steps, divided by `parts`.
void measure(corro_engine* engine, PlanBuilder& built, int rounds, uint32_t micros, double parts) {
  corro_plan* plan = built.load(corro_engine_world(engine));
  std::vector<double> times;
  for (int round = 0; round <= rounds; ++round) {  // The first one warms up.
    barrier(engine);
    const auto begin = Clock::now();
    run_step(built, plan, static_cast<uint32_t>(round + 1) * micros, micros);
    barrier(engine);
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    if (round > 0) times.push_back(took.count() / parts);
  }
  std::sort(times.begin(), times.end());
  if (corro_engine_rank(engine) == 0) {
    std::printf("{\"bytes\": 0, \"min_us\": %.3f, \"median_us\": %.3f}\n", times.front(),
                times[times.size() / 2]);
  }
  corro_plan_unload(plan);
}

std::vector<uint32_t> credits_of(const char* text) {
  std::vector<uint32_t> credits;
  for (char* at = const_cast<char*>(text); *at != '\0'; at += *at == ',' ? 1 : 0)
    credits.push_back(static_cast<uint32_t>(std::strtoul(at, &at, 10)));
  return credits;
}

}  // namespace

int main(int argc, char** argv) {
  const bool pipeline = argc == 5 && std::strcmp(argv[1], "pipeline") == 0;
  if (!pipeline && !(argc == 3 && std::strcmp(argv[1], "firing") == 0)) {
    std::fprintf(stderr, "plan_corro pipeline CREDITS DELAY ROUNDS | plan_corro firing ROUNDS\n");
    return 2;
  }
  corro_error error = {};
  corro_engine* engine = nullptr;
  corro_options options = {};
  options.struct_size = sizeof options;
  check(corro_engine_create(&options, &engine, &error), error);
  PlanBuilder built;
  if (pipeline) {
    make_pipeline(built, credits_of(argv[2]), std::atof(argv[3]) * kUnit);
    measure(engine, built, std::atoi(argv[4]), kMicroBatches, 1);
  } else {
    const uint32_t there = built.channel("there", 1, 1);
    const uint32_t back = built.channel("back", 1);
    for (uint32_t r = 0; r < 2; ++r) built.lane("turn" + std::to_string(r), r);
    built.service("turn0", 0, 0, Unit::zero(), {back}, {there});
    built.service("turn1", 1, 0, Unit::zero(), {there}, {back});
    measure(engine, built, std::atoi(argv[2]), kTurns, 2.0 * kTurns);
  }
  corro_engine_destroy(engine);
  return 0;
}
