#include "runtime/pulled_lane.h"

#include <fmt/format.h>

namespace corro::runtime {
namespace {

Status not_in_flight(const PulledFiring& firing) {
  return {Code::kFailedPrecondition,
          fmt::format("this firing (service {}, micro-batch {}) is not in flight: done already?",
                      firing.service, firing.generation.micro)};
}

}  // namespace

PulledLane::PulledLane(std::vector<graph::ServiceId> services, FiringRecords* records)
    : services_(std::move(services)),
      records_(records),
      slots_(std::make_unique<Done[]>(services_.size())) {
  waiting_.lock()->ring.resize(services_.size());
}

void PulledLane::start(Time /*now*/, const graph::Work& work) {
  const graph::Firing& firing = work.firing;
  slots_[firing.ticket.task].held.store(firing.ticket.sequence, std::memory_order_relaxed);
  {
    auto waiting = waiting_.lock();
    const size_t place = (waiting->first + waiting->count++) % waiting->ring.size();
    waiting->ring[place] = {.service = services_[firing.ticket.task],
                            .generation = firing.generation,
                            .inputs = firing.inputs,
                            .outputs = firing.outputs,
                            .ticket = firing.ticket};
  }
  waiting_.notify_all();
}

Result<PulledFiring> PulledLane::next(Duration timeout) {
  const Time deadline = monotonic_now() + timeout;
  auto waiting = waiting_.lock();
  while (waiting->count == 0 || !waiting->stopped.ok()) {
    if (!waiting->stopped.ok()) return waiting->stopped;
    const Duration left = timeout == Duration::zero() ? timeout : deadline - monotonic_now();
    if (left <= Duration::zero())
      return Status(Code::kDeadlineExceeded, "nothing has fired on this lane");
    (void)waiting.wait_for(left);
  }
  const size_t place = waiting->first;
  waiting->first = (place + 1) % waiting->ring.size();
  --waiting->count;
  computing_.fetch_add(1, std::memory_order_relaxed);
  slots_[waiting->ring[place].ticket.task].since = monotonic_now();
  return waiting->ring[place];
}

std::optional<PulledFiring> PulledLane::oldest() {
  auto waiting = waiting_.lock();
  if (waiting->count == 0) return std::nullopt;
  return waiting->ring[waiting->first];
}

Status PulledLane::fill(const PulledFiring& firing, size_t output, uint64_t bytes) {
  const uint32_t task = firing.ticket.task;
  if (task >= services_.size() || firing.ticket.sequence == 0 ||
      slots_[task].held.load(std::memory_order_relaxed) != firing.ticket.sequence) {
    return not_in_flight(firing);
  }
  if (output >= firing.outputs.size())
    return {Code::kInvalidArgument,
            fmt::format("there is no output {} of {}", output, firing.outputs.size())};
  graph::Slot& slot = *firing.outputs[output];
  if (bytes > slot.data.size()) {
    return {Code::kInvalidArgument, fmt::format("output {} has room for {} bytes, not {}", output,
                                                slot.data.size(), bytes)};
  }
  slot.size_bytes = bytes;
  return {};
}

Status PulledLane::done(const PulledFiring& firing, const Status& status) {
  const uint32_t task = firing.ticket.task;
  uint32_t held = firing.ticket.sequence;
  if (task >= services_.size() || held == 0 ||
      !slots_[task].held.compare_exchange_strong(held, 0, std::memory_order_relaxed)) {
    return not_in_flight(firing);
  }
  Done& slot = slots_[task];
  slot.until = monotonic_now();
  slot.ticket = firing.ticket;
  slot.status = status;
  slot.next = done_.load(std::memory_order_relaxed);
  while (!done_.compare_exchange_weak(slot.next, &slot, std::memory_order_seq_cst,
                                      std::memory_order_relaxed)) {
  }
  computing_.fetch_sub(1, std::memory_order_release);
  return {};
}

bool PulledLane::poll(Time /*now*/) {
  if (done_.load(std::memory_order_relaxed) == nullptr) return false;
  Done* newest = done_.exchange(nullptr, std::memory_order_acquire);
  Done* oldest = nullptr;
  while (newest != nullptr) {
    Done* const before = std::exchange(newest->next, oldest);
    oldest = std::exchange(newest, before);
  }
  while (oldest != nullptr) {
    Done* const after = oldest->next;  // complete() may start the same service again
    if (records_ != nullptr) records_->computed(oldest->ticket.task, oldest->since, oldest->until);
    executor_->complete(oldest->ticket, oldest->status);
    oldest = after;
  }
  return true;
}

void PulledLane::stop(const Status& cause, Time /*now*/) {
  std::vector<graph::Ticket> untaken;
  {
    auto waiting = waiting_.lock();
    waiting->stopped = cause;
    for (; waiting->count > 0; --waiting->count) {
      untaken.push_back(waiting->ring[waiting->first].ticket);
      waiting->first = (waiting->first + 1) % waiting->ring.size();
    }
  }
  waiting_.notify_all();
  for (const graph::Ticket ticket : untaken) executor_->complete(ticket, cause);
}

}  // namespace corro::runtime
