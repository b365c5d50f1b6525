#include "launch/launcher.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "launch/last_word.h"
#include "launch/run_job.h"

namespace corro::launch {
namespace {

constexpr Duration kLookInterval = std::chrono::seconds(1);     ///< Between looks at what ranks do.
constexpr Duration kLastWord = std::chrono::milliseconds(500);  ///< For an impatient user.
constexpr Duration kLastPicture = std::chrono::milliseconds(1500);  ///< For whoever watches.

}  // namespace

Launcher::Launcher(Job& job, Standalone* standalone)
    : job_(job),
      standalone_(standalone),
      leadership_(standalone != nullptr ? &standalone->lead : nullptr),
      input_(job),
      orders_(job, leadership_, input_, progress_,
              standalone != nullptr ? standalone->secret : wire::random_secret()),
      opening_(job, leadership_, standalone != nullptr ? standalone->record : std::nullopt),
      hearing_(job, leadership_, orders_, input_, opening_),
      user_(job, orders_) {
  if (standalone == nullptr) return;
  dialled_.emplace(job, leadership_, hearing_, *standalone);
  show_ = standalone->show;
}

std::optional<int> Launcher::run(const sigset_t& heard) {
  if (const Status opened = open(heard); !opened.ok()) {
    user_.read_signals();  // One that has ended the start may not have been heard yet.
    job_.course.refuse(opened.message());
  }
  const JobCourse& course = job_.course;
  while (!course.over() && course.refused().empty() && leadership_.holds()) step();
  const bool is_wanted = !course.begun() && !course.asked();  // By others, with other agents.
  if (leadership_.holds() && !is_wanted) leadership_.end(job_.plan.job.job_id, std::nullopt);
  const bool begins_anew = dialled_ && hearing_.lost_early() && is_wanted;
  job_.output.set_progress("");
  if (!leadership_.holds() || begins_anew) return leave();
  fence();
  if (show_) show_(format_progress(progress_.take(monotonic_now())));
  const std::optional<Ending> ending = say_last_word(job_, orders_, job_.agents.end());
  if (ending && leadership_.over()) leadership_.end(job_.plan.job.job_id, ending);
  flush_screen();
  if (!ending) return std::nullopt;
  show_end(*ending);
  if (standalone_ != nullptr) standalone_->ending = ending;
  return ending->status;
}

// -- before ranks run -----------------------------------------------------------------------------

Status Launcher::open(const sigset_t& heard) {
  CORRO_TRY(listen(heard));
  opening_.meet(monotonic_now());
  look_at_ = monotonic_now() + kLookInterval;
  while (!opening_.ready()) {
    if (opening_.waits()) step();
    CORRO_TRY(opening_.advance());
  }
  CORRO_TRY(user_.listen_to_caller());
  opening_.start_ranks();
  orders_.carry_out();
  look_at_ = monotonic_now() + kLookInterval;
  return {};
}

Status Launcher::listen(const sigset_t& heard) {
  const io::EventFd& room = job_.output.room();
  CORRO_TRY(user_.listen(heard));
  CORRO_TRY(job_.loop.watch(room.fd(), EPOLLIN, [&room] { (void)room.drain(); }));
  CORRO_TRY(hearing_.listen());
  return dialled_ ? dialled_->listen() : Status();
}

// -- the loop -------------------------------------------------------------------------------------

void Launcher::step() {
  job_.loop.turn(wake());
  if (dialled_) dialled_->tick(monotonic_now());
  leadership_.keep(monotonic_now());
  if (input_.is_file()) input_.send();
  on_timers(monotonic_now());
  if (!leadership_.holds()) return;
  // While the screen takes nothing the agents get no credit, and read nothing from the ranks.
  if (!job_.output.full()) job_.agents.give_credit();
  // The agents know of a stop before it: else they would take the launcher for gone.
  if (job_.agents.flush() && user_.take_suspension()) kill(getpid(), SIGSTOP);
}

Time Launcher::wake() const {
  if (job_.meeting.busy() || input_.is_file()) return Time{};
  return std::min({job_.course.wake(), look_at_, opening_.deadline(), give_up_at_,
                   job_.output.next_tick(), leadership_.due(),
                   dialled_ ? dialled_->due() : Time::never(),
                   show_ ? progress_.due() : Time::never(), job_.display.due(),
                   job_.watches_hosts() ? job_.hosts->due() : Time::never()});
}

void Launcher::on_timers(Time now) {
  if (!leadership_.holds()) return;
  job_.output.tick(now);
  if (look_at_ <= now) look(now);
  if (job_.watches_hosts()) job_.hosts->look(job_.course, now);
  job_.course.tick(now);
  orders_.carry_out();
  show_progress(now);
  job_.display.tick(now);
}

void Launcher::show_progress(Time now) {
  if (show_ && now >= progress_.due()) show_(format_progress(progress_.take(now)));
}

void Launcher::look(Time now) {
  // Ctrl-Z has stopped the launcher, if it looks late: in that time nobody had to answer.
  const Duration stopped = now - look_at_;
  job_.agents.excuse_silence(stopped, now);
  opening_.excuse(stopped);
  if (const std::string trouble = job_.policy ? job_.policy->look() : ""; !trouble.empty())
    job_.course.note(trouble);
  const bool goes_on = job_.course.goes_on();
  job_.course.look(now);
  orders_.carry_out();
  job_.display.look(now);
  if (goes_on && job_.output.shows_progress() && job_.output.empty())
    job_.output.set_progress(job_.display.progress(now));
  job_.agents.look_for_silence(now);
  input_.look();
  // By these looks other hosts know that the launcher lives, to the end. Each is answered in time.
  look_at_ = goes_on || job_.agents.any_remote() ? now + kLookInterval : Time::never();
  if (look_at_ != Time::never()) job_.agents.send_all(agent::Look{});
}

// -- the end --------------------------------------------------------------------------------------

/// Agents end what ranks have left, and themselves. Those that dial are left for a job that has not
/// begun yet, unless the user wants none.
void Launcher::fence() {
  if (dialled_ && !leadership_.over()) return;
  job_.agents.give_up_silent();
  job_.course.fence();
  orders_.carry_out();
  while (!job_.agents.over() && !job_.course.impatient() && leadership_.holds()) step();
}

/// Another coordinator goes on with the job, or this one once more.
int Launcher::leave() {
  leadership_.keep(monotonic_now());
  const std::string lost = leadership_.lost();
  job_.output.note("corro: " + (lost.empty() ? job_.course.refused() : lost) + "\n");
  flush_screen();
  return kLeadLost;
}

/// The history has the end. Whoever looks sees it, too: the dashboard's page asks once a second, and
/// `corro top` reads what it is sent. Nobody else waits.
void Launcher::show_end(const Ending& ending) {
  const Time now = monotonic_now();
  job_.display.end(ending, now);
  user_.answer();
  const bool is_watched = job_.display.is_watched(now);
  give_up_at_ = now + kLastPicture;
  while ((is_watched || user_.is_answering()) && monotonic_now() < give_up_at_ &&
         !job_.course.impatient())
    step();
}

void Launcher::flush_screen() {
  if (job_.course.impatient() || !leadership_.holds()) give_up_at_ = monotonic_now() + kLastWord;
  while (!job_.output.empty() && monotonic_now() < give_up_at_) step();
  if (!job_.output.empty()) job_.output.abandon();  // its thread may hang in write() for ever
}

}  // namespace corro::launch
