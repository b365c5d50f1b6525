#include "runtime/copy_lane.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/exception.h"
#include "base/own_thread.h"

namespace corro::runtime {
namespace {

/// Takes no longer than to wake a thread.
constexpr uint64_t kAtOnce = uint64_t{64} << 10U;
/// A plan that stops waits for no more.
constexpr size_t kPiece = size_t{8} << 20U;
constexpr uint64_t kMostFileBytes = uint64_t{1} << 63U;
__extension__ using Wide = unsigned __int128;

/// Where the range of a firing begins in its file.
Wide offset_of(const graph::CopySpec& spec, uint32_t firing) {
  const uint64_t range = spec.count == 0 ? firing : firing % spec.count;
  return Wide{spec.offset} + Wide{range} * spec.stride;
}

}  // namespace

CopyLane::CopyLane(const graph::Plan& plan, graph::LaneId here, std::function<void()> wake)
    : copies_(plan.services.size()), wake_(std::move(wake)) {
  uint32_t slow = 0;
  for (graph::ServiceId id = 0; id < plan.services.size(); ++id) {
    const graph::ServiceSpec& service = plan.services[id];
    if (service.lane != here) continue;
    copies_[id] = {.spec = *service.copy, .every = service.every};
    const bool is_little = std::ranges::all_of(service.inputs, [&plan](graph::ChannelId channel) {
      return plan.channels[channel].slot_bytes <= kAtOnce;
    });
    if (service.copy->kind != graph::CopyKind::kMemory || !is_little) ++slow;
  }
  most_threads_ = std::min(plan.lanes[here].depth, slow);
}

CopyLane::~CopyLane() {
  stopping_.store(true, std::memory_order_relaxed);
  jobs_.lock()->over = true;
  jobs_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// -- the engine's side ----------------------------------------------------------------------------

void CopyLane::serve(graph::Executor& executor) {
  executor_ = &executor;
  while (threads_.size() < most_threads_)
    threads_.push_back(start_own_thread("corro-copy", [this] { run(); }));
}

void CopyLane::start(Time /*now*/, const graph::Work& work) {
  const graph::Firing& firing = work.firing;
  graph::Slot* const from = with_memory(firing.inputs);
  graph::Slot* const into = with_memory(firing.outputs);
  Job job{.ticket = firing.ticket,
          .copy = &copies_[firing.ticket.task],
          .micro = firing.generation.micro,
          .from = from == nullptr ? std::span<std::byte>() : from->data.first(from->size_bytes),
          .into = into == nullptr ? std::span<std::byte>() : into->data};
  if (from != nullptr && into != nullptr) {
    into->size_bytes = from->size_bytes;
    job.into = job.into.first(job.from.size());
    if (from->data.size() <= kAtOnce) return end(job, copy(job));
  }
  jobs_.lock()->waiting.push_back(job);
  jobs_.notify_all();
}

bool CopyLane::poll(Time /*now*/) {
  if (!news_.load(std::memory_order_relaxed)) return false;
  news_.store(false, std::memory_order_seq_cst);
  told_.swap(jobs_.lock()->ended);
  for (const Ended& one : told_) executor_->complete(one.ticket, one.status);
  told_.clear();
  return true;
}

void CopyLane::stop(const Status& cause, Time /*now*/) {
  stopping_.store(true, std::memory_order_relaxed);
  for (const Job& job : std::exchange(jobs_.lock()->waiting, {}))
    executor_->complete(job.ticket, cause);
}

// -- the threads' side ----------------------------------------------------------------------------

void CopyLane::run() {
  while (const auto job = next()) {
    Status status;
    try {
      status = copy(*job);
    } catch (const std::exception& thrown) {
      status = status_of(thrown);
    }
    end(*job, status);
    if (wake_) wake_();
  }
}

std::optional<CopyLane::Job> CopyLane::next() {
  auto jobs = jobs_.lock();
  while (jobs->waiting.empty() && !jobs->over) (void)jobs.wait_for(Duration::max());
  if (jobs->over) return std::nullopt;
  const Job job = jobs->waiting.front();
  jobs->waiting.erase(jobs->waiting.begin());
  return job;
}

void CopyLane::end(const Job& job, const Status& status) {
  jobs_.lock()->ended.push_back({job.ticket, status});
  news_.store(true, std::memory_order_seq_cst);
}

Status CopyLane::copy(const Job& job) {
  const graph::CopySpec& spec = job.copy->spec;
  const size_t bytes = std::max(job.from.size(), job.into.size());
  if (spec.kind != graph::CopyKind::kMemory) {
    if (offset_of(spec, job.micro / job.copy->every) + bytes > kMostFileBytes) {
      return {Code::kOutOfRange,
              fmt::format("{} ends before its range of micro-batch {}", spec.path, job.micro)};
    }
    if (!job.copy->file) {
      const bool reads = spec.kind == graph::CopyKind::kRead;
      CORRO_ASSIGN(job.copy->file,
                   io::DataFile::open(
                       spec.path, reads ? io::DataFile::Use::kRead : io::DataFile::Use::kWrite));
    }
  }
  for (size_t done = 0; done < bytes; done += kPiece) {
    if (stopping_.load(std::memory_order_relaxed))
      return {Code::kCancelled, "the plan has stopped meanwhile"};
    CORRO_TRY(copy_piece(job, done, std::min(kPiece, bytes - done)));
  }
  return {};
}

Status CopyLane::copy_piece(const Job& job, size_t done, size_t bytes) const {
  const graph::CopySpec& spec = job.copy->spec;
  const auto offset = static_cast<uint64_t>(offset_of(spec, job.micro / job.copy->every)) + done;
  switch (spec.kind) {
    case graph::CopyKind::kRead:
      return job.copy->file->read(offset, job.into.subspan(done, bytes));
    case graph::CopyKind::kWrite:
      return job.copy->file->write(offset, job.from.subspan(done, bytes));
    case graph::CopyKind::kMemory:
      std::memcpy(job.into.data() + done, job.from.data() + done, bytes);
  }
  return {};
}

}  // namespace corro::runtime
