#include "kube/user/autoscaler.h"

#include <algorithm>

#include "kube/user/job_facts.h"

namespace corro::kube {
namespace {

constexpr double kLeastSteps = 10;
constexpr Duration kPatience = std::chrono::seconds(30);
/// What a change of members costs in a pod, as measured (docs/benchmarks.md), and some more.
constexpr Duration kStall = std::chrono::seconds(1);

double number_at(const Json& job, std::initializer_list<std::string_view> path, double otherwise) {
  const Json* value = value_at(job, path);
  return value == nullptr || !value->is_number() ? otherwise : std::max(0.0, value->get<double>());
}

}  // namespace

Result<Autoscaler::Facts> Autoscaler::read(const Json& job) {
  if (!is_elastic(job))
    return Status(Code::kFailedPrecondition,
                  "the job is not elastic: it has no worker.min (corro run --min-np)");
  const auto count = [&job](std::initializer_list<std::string_view> path, size_t otherwise) {
    return static_cast<size_t>(number_at(job, path, static_cast<double>(otherwise)));
  };
  Facts facts;
  facts.target = count({"spec", "worker", "target"}, 1);
  facts.least = count({"spec", "worker", "min"}, 1);
  facts.most = count({"spec", "worker", "max"}, facts.target);
  facts.slots = std::max<size_t>(1, count({"spec", "worker", "slots"}, 1));
  facts.ranks = count({"status", "progress", "ranks"}, 0);
  facts.epoch = count({"status", "progress", "epoch"}, 0);
  facts.step = number_at(job, {"status", "progress", "step"}, 0);
  facts.rate = number_at(job, {"status", "progress", "stepsPerSecond"}, 0);
  return facts;
}

void Autoscaler::note_rate(const Facts& facts, Time now) {
  const bool is_same = last_ && last_->epoch == facts.epoch && last_->ranks == facts.ranks;
  if (!is_same) {
    since_ = now;
    sampled_step_ = facts.step + kLeastSteps;  // The first ten begin slowly.
    return;
  }
  if (facts.rate <= 0 || facts.step < sampled_step_ + kLeastSteps) return;
  sampled_step_ = facts.step;
  const double batches = options_.has_global_batch ? 1.0 : static_cast<double>(facts.ranks);
  history_.add(facts.ranks / facts.slots, facts.rate * batches);
}

void Autoscaler::note_refusal(const Facts& facts, Time now) {
  const size_t workers = facts.ranks / facts.slots;
  if (workers >= facts.target) lacks_since_ = Time::never();
  if (workers < facts.target && lacks_since_ == Time::never()) lacks_since_ = now;
  if (lacks_since_ == Time::never() || now < lacks_since_ + kPatience) return;
  refusal_ = coord::Refusal{.at = now, .had = workers};
}

Result<std::optional<coord::Sizing>> Autoscaler::look(const Json& job, Time now) {
  CORRO_ASSIGN(const Facts facts, read(job));
  std::optional<coord::Sizing> none;
  if (facts.ranks < facts.slots) return none;  // It does not run.
  note_rate(facts, now);
  note_refusal(facts, now);
  last_ = facts;
  coord::AutoscalingOptions how;
  how.least = std::max<size_t>(1, facts.least);
  how.most = std::max(how.least, facts.most);
  how.least_gain = options_.least_gain;
  coord::Sizing sizing = coord::decide_workers({.now = now,
                                                .workers = facts.ranks / facts.slots,
                                                .wanted = facts.target,
                                                .since = since_,
                                                .stall = kStall,
                                                .refusal = refusal_,
                                                .history = &history_},
                                               how);
  if (sizing.workers == facts.target) return none;
  return std::optional(std::move(sizing));
}

}  // namespace corro::kube
