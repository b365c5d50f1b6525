#include "in_flight.h"

namespace corro::tensorflow {
namespace {

/// What the ops raise is what Horovod's raise: FailedPreconditionError where ranks differ, and
/// UnknownError where a rank or this one's part in the job is lost. (TensorFlow has meanings of its
/// own for CANCELLED and UNAVAILABLE, and tells of the latter as something else.)
corro_code code_for_tensorflow(corro_code code) {
  switch (code) {
    case CORRO_INVALID_ARGUMENT:
      return CORRO_FAILED_PRECONDITION;
    case CORRO_CANCELLED:
    case CORRO_ABORTED:
    case CORRO_UNAVAILABLE:
      return CORRO_UNKNOWN;
    default:
      return code;
  }
}

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
    status.set(code_for_tensorflow(code), error.message);
    TF_OpKernelContext_Failure(context_, status.get());
  }
  end();
}

void InFlight::end() {
  tensors_.clear();  // Before TensorFlow goes on: it may use their memory again.
  if (done_) done_->run();
}

}  // namespace corro::tensorflow
