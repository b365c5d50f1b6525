// UserRequests: what the user of a job asks for while it runs: by a signal, by another command
// (`corro stacks`, `trace`, `status`, `top`, `dash`), or by the end of the program that has called
// corro.run(). The course decides what follows.
#pragma once

#include <signal.h>

#include <utility>

#include "io/fd.h"
#include "launch/job.h"
#include "launch/job_orders.h"

namespace corro::launch {

/// Loop-confined. All that it borrows outlives it.
class UserRequests {
 public:
  UserRequests(Job& job, JobOrders& orders) : job_(job), orders_(orders) {}

  /// From now on signals (job_signals.h) and questions are heard.
  [[nodiscard]] Status listen(const sigset_t& heard);
  /// The same for the end of the caller, if there is one. To be called once its call was read.
  [[nodiscard]] Status listen_to_caller();
  /// Hears signals that have come meanwhile.
  void read_signals();
  /// Once after Ctrl-Z: the launcher is to stop.
  [[nodiscard]] bool take_suspension() { return std::exchange(suspends_, false); }

  /// Answers what can be answered by now: pictures, where the page is, and the end once the job is
  /// over.
  void answer();
  /// Somebody has not taken all of an answer yet.
  [[nodiscard]] bool is_answering() const {
    return job_.control != nullptr && job_.control->is_answering();
  }

 private:
  void on_signal(int signal);
  void on_question();
  void on_caller();

  Job& job_;
  JobOrders& orders_;
  io::Fd signals_;
  bool suspends_ = false;
};

}  // namespace corro::launch
