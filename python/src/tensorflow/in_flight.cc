#include "in_flight.h"

#include <string>

namespace corro::tensorflow {
namespace {

/// Behind the error of an op that runs twice at once.
constexpr const char* kOnceAtATime =
    ". Other ranks cannot tell runs of one op apart: start it once at a time, that is from one "
    "thread, and in Dataset.map() without num_parallel_calls";

}  // namespace

void InFlight::finish(std::unique_ptr<InFlight> call, corro_work* work) {
  if (call->done_) return plugin::wait_on_thread(std::move(call), work);
  plugin::wait_here(*call, work);
}

void InFlight::fail(std::unique_ptr<InFlight> call, const Status& status) {
  TF_OpKernelContext_Failure(call->context_, status.get());
  call->end();
}

void InFlight::over(corro_code code, const corro_error& error) {
  if (code != CORRO_OK) {
    Status status;
    // Ranks differ: what is wrong on this one alone is refused at once.
    if (code == CORRO_INVALID_ARGUMENT)
      status.set(CORRO_FAILED_PRECONDITION, error.message);
    else if (code == CORRO_ALREADY_EXISTS)
      status.set(code, std::string(error.message) + kOnceAtATime);
    else
      status.set(error);
    TF_OpKernelContext_Failure(context_, status.get());
  }
  end();
}

void InFlight::end() {
  tensors_.clear();  // Before TensorFlow goes on: it may use their memory again.
  if (done_) done_->run();
}

}  // namespace corro::tensorflow
