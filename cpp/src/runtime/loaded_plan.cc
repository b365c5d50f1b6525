#include "runtime/loaded_plan.h"

#include <algorithm>

#include <fmt/format.h>

namespace corro::runtime {
namespace {

/// A rank that stops a plan tells all others at once.
constexpr Duration kTimeToSayWhy = std::chrono::seconds(1);

}  // namespace

// -- progress -------------------------------------------------------------------------------------

std::shared_ptr<WorkState> LoadedPlan::run_until(uint32_t micro) {
  auto work = std::make_shared<WorkState>(std::vector<collective::OpRequest>(1));
  if (!stopped_.ok()) {
    work->finish_one(stopped_);
    return work;
  }
  part_.executor().run_until(micro);
  fresh_ = true;
  waiters_.push_back({micro, work});
  std::ranges::stable_sort(waiters_, {}, &Waiter::until);
  return work;
}

bool LoadedPlan::has_news() const {
  return fresh_ || std::ranges::any_of(part_.lanes(), &PlanLane::has_news);
}

bool LoadedPlan::poll(Time now) {
  bool moved = std::exchange(fresh_, false);
  for (PlanLane* lane : part_.lanes()) moved = lane->poll(now) || moved;
  moved = part_.executor().poll(now) || moved;
  if (!moved) return false;
  moved_ = now;
  settle(now);
  return true;
}

/// Ends the plan if a firing has failed, and the waits that are over.
void LoadedPlan::settle(Time now) {
  if (!stopped_.ok()) return;
  if (const Status& status = part_.executor().status(); !status.ok())
    return end({status, status.detail() ? status.detail()->rank : -1}, true, now);
  const auto is_over = [this](const Waiter& first) {
    if (part_.executor().reached()) return true;
    return first.until < waiters_.back().until && completed() >= first.until;
  };
  while (!waiters_.empty() && is_over(waiters_.front())) {
    waiters_.front().work->finish_one({});
    waiters_.erase(waiters_.begin());
  }
}

/// Something shows that the plan has ended elsewhere: true as long as STOP may still say why.
bool LoadedPlan::may_hear_why(Time now) {
  if (why_until_ == Time::never()) why_until_ = now + kTimeToSayWhy;
  return now < why_until_ && !parts_.epoch_ends;
}

void LoadedPlan::check(Time now) {
  if (!stopped_.ok()) return;
  for (PlanLane* lane : part_.lanes()) {
    const auto failure = lane->check(now);
    if (failure) heard_.emplace(lane, *failure);
    if (failure && !failure->heard) break;
  }
  if (!heard_ || (heard_->second.heard && may_hear_why(now))) return;
  const auto [lane, failure] = *heard_;
  lane->stop(failure.cause, now);  // first: its services are what it happened in
  end(failure, true, now);
}

void LoadedPlan::check_served(Time now) {
  const auto computes = [](const PulledLane* lane) { return lane->computing() > 0; };
  const bool served = std::ranges::any_of(part_.pulled_lanes(), computes);
  (void)poll(now);  // What threads have done in the meantime counts.
  if (served) moved_ = now;
  if (!stopped_.ok() || now - moved_ < part_.timeout()) return;
  for (PulledLane* lane : part_.pulled_lanes()) {
    const auto firing = lane->oldest();
    if (!firing) continue;
    const graph::Plan& whole = part_.whole();
    const graph::ServiceSpec& service = whole.services[firing->service];
    const int32_t rank = facts_.own_world_rank();
    return stop(
        {Code::kDeadlineExceeded,
         fmt::format("service {}, micro-batch {}: waited for a thread of rank {} that "
                     "serves lane {} for {:.3g} s",
                     service.name, firing->generation.micro, rank, whole.lanes[service.lane].name,
                     std::chrono::duration<double>(now - moved_).count()),
         {.rank = rank}},
        now);
  }
}

Time LoadedPlan::next_deadline() const {
  Time earliest = stopped_.ok() ? why_until_ : Time::never();
  for (const PlanLane* lane : part_.lanes()) earliest = std::min(earliest, lane->next_deadline());
  return earliest;
}

void LoadedPlan::check_departed(Time now) {
  for (PlanLane* lane : part_.lanes()) {
    const MemberId left = lane->awaited_that_left();
    if (left < 0) continue;
    if (may_hear_why(now)) return;
    const Status cause = has_left(facts_.world_rank(facts_.index_of(left)));
    lane->stop(cause, now);  // First: its services are what it happened in.
    return stop(cause, now);
  }
}

void LoadedPlan::hear(MemberId from, const wire::Control& control, Time now) {
  if (control.kind == wire::ControlKind::kStop && control.lane == part_.key()) {
    const int32_t r = facts_.index_of(from);
    const auto code = static_cast<Code>(std::clamp<int>(control.code, 1, 16));
    const auto& ranks = facts_.world_ranks;
    const bool known = std::find(ranks.begin(), ranks.end(), control.rank) != ranks.end();
    const int32_t culprit = known ? control.rank : facts_.world_rank(r);
    return end({{code,
                 fmt::format("rank {} stopped the plan: {}", facts_.world_rank(r), control.text),
                 {.rank = culprit}},
                culprit},
               false, now);
  }
  PlanLane* lane = part_.find_lane(control.lane);
  if (lane == nullptr) return;
  lane->hear(from, control);
  settle(now);
}

void LoadedPlan::judge(MemberId from, const transport::MessageKey& key,
                       const SignatureBits& signature) {
  PlanLane* lane = part_.find_lane(key.lane);
  if (lane != nullptr) lane->judge(from, key.op, signature);
}

// -- the end --------------------------------------------------------------------------------------

void LoadedPlan::stop(const Status& cause, Time now) {
  end({cause, cause.detail() ? cause.detail()->rank : facts_.own_world_rank()}, true, now);
}

void LoadedPlan::fail(const Status& cause, Time now) {
  end({cause, cause.detail() ? cause.detail()->rank : -1}, false, now);
}

void LoadedPlan::end(const GroupFailure& failure, bool tell, Time now) {
  if (!stopped_.ok()) return;
  const Status& cause = failure.cause;
  // What is in flight among ranks fails first, so the reason says what it was.
  for (PlanLane* lane : part_.lanes()) {
    if (lane->key()) lane->stop(cause, now);
  }
  const std::string waits = part_.executor().describe_waiting();
  part_.executor().stop(waits.empty() ? cause
                                      : cause.with_context(waits.substr(0, waits.find('\n'))));
  stopped_ = part_.executor().status();
  for (PlanLane* lane : part_.lanes()) {
    if (!lane->key()) lane->stop(stopped_, now);
  }
  has_stopped_.store(true, std::memory_order_release);
  if (tell) tell_why(failure);
  for (const Waiter& waiter : std::exchange(waiters_, {})) waiter.work->finish_one(stopped_);
}

/// The reason is the cause with its context in front: which service, which micro-batch.
void LoadedPlan::tell_why(const GroupFailure& failure) {
  std::string why = stopped_.message();
  const size_t cause = failure.cause.message().size();
  if (why.ends_with(failure.cause.message()))
    why.replace(why.size() - cause, cause, failure.words_for_others());
  tell_members(parts_, facts_,
               {.kind = wire::ControlKind::kStop,
                .code = static_cast<uint8_t>(stopped_.code()),
                .lane = part_.key(),
                .rank = failure.culprit,
                .op = completed(),
                .text = wire::reason_text(why)});
}

}  // namespace corro::runtime
