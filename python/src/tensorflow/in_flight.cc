#include "in_flight.h"

namespace corro::tensorflow {
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
