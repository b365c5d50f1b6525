// JobOrders: carries out what a job's course orders (job_course.h), in its order: tells agents, has
// ranks started, shows lines and events, and keeps the job's record.
//
// Nothing is done any more once the lead is lost. To be called after whatever was reported to the
// course; what is ordered meanwhile is carried out, too.
#pragma once

#include "launch/job.h"
#include "launch/leadership.h"
#include "launch/progress.h"
#include "launch/rank_input.h"
#include "wire/secret.h"

namespace corro::launch {

/// Loop-confined. All that it borrows outlives it.
class JobOrders {
 public:
  /// `secret`: of the ranks.
  JobOrders(Job& job, Leadership& leadership, RankInput& input, ProgressWatch& progress,
            const wire::Secret& secret)
      : job_(job), leadership_(leadership), input_(input), progress_(progress), secret_(secret) {}

  void carry_out();

 private:
  void carry_out(const TellHost& order) { job_.agents.send(order.host, order.message); }
  void carry_out(const TellAll& order);
  void carry_out(const StartRank& order);
  void carry_out(const StartServer& order);
  void carry_out(const SuspectHost& order) { job_.agents.suspect(order.host, monotonic_now()); }
  void carry_out(const Announce& order);
  void carry_out(const Note& order) { job_.output.note(order.line); }
  void carry_out(const ShowStatus& order) { job_.output.set_status(order.line); }
  void carry_out(const EndStatus& order) { job_.output.end_status(order.over); }
  void carry_out(const HoldErrors& /*order*/) { job_.output.hold_errors(); }
  void carry_out(const AnswerStacks& order) { job_.control->answer(Question::kStacks, order.text); }
  void carry_out(const AnswerTrace& order) { job_.control->answer(Question::kTrace, order.text); }
  void carry_out(const Remember& order);

  Job& job_;
  Leadership& leadership_;
  RankInput& input_;
  ProgressWatch& progress_;
  const wire::Secret secret_;
};

}  // namespace corro::launch
