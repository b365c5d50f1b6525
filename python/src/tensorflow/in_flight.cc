#include "in_flight.h"

#include <thread>

namespace corro::tensorflow {
namespace {

/// Never destroyed, as its thread never ends: works may end while the process exits.
corro_queue* queue() {
  static corro_queue* const kQueue = [] {
    corro_queue* made = nullptr;
    (void)corro_queue_create(&made, nullptr);
    return made;
  }();
  return kQueue;
}

}  // namespace

void InFlight::finish(std::unique_ptr<InFlight> call, corro_work* work) {
  call->work_ = work;
  if (!call->done_) {
    (void)corro_work_wait(work, -1, nullptr);
    return call->tell_outcome();
  }
  static const bool kRuns = [] {
    std::thread(&InFlight::run).detach();
    return true;
  }();
  (void)kRuns;
  corro_work_notify(work, queue(), reinterpret_cast<uint64_t>(call.release()));
}

void InFlight::fail(std::unique_ptr<InFlight> call, const Status& status) {
  TF_OpKernelContext_Failure(call->context_, status.get());
  call->end();
}

void InFlight::run() {
  while (true) {
    uint64_t cookie = 0;
    if (corro_queue_next(queue(), &cookie, -1) != CORRO_OK) continue;
    const std::unique_ptr<InFlight> call(reinterpret_cast<InFlight*>(cookie));
    call->tell_outcome();
  }
}

void InFlight::tell_outcome() {
  corro_error error;
  if (corro_work_wait(work_, 0, &error) != CORRO_OK) {
    Status status;
    // Ranks differ: what is wrong on this one alone is refused at once.
    if (error.code == CORRO_INVALID_ARGUMENT)
      status.set(CORRO_FAILED_PRECONDITION, error.message);
    else
      status.set(error);
    TF_OpKernelContext_Failure(context_, status.get());
  }
  corro_work_release(work_);
  end();
}

void InFlight::end() {
  tensors_.clear();  // Before TensorFlow goes on: it may use their memory again.
  if (done_) done_->run();
}

}  // namespace corro::tensorflow
