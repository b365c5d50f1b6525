#include "launch/user_requests.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

#include "launch/rank_start.h"

namespace corro::launch {

Status UserRequests::listen(const sigset_t& heard) {
  signals_.reset(signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK));
  CORRO_TRY(job_.loop.watch(signals_.get(), EPOLLIN, [this] { read_signals(); }));
  if (job_.control == nullptr) return {};
  return job_.loop.watch(job_.control->poll_fd(), EPOLLIN, [this] { on_question(); });
}

Status UserRequests::listen_to_caller() {
  if (!job_.caller) return {};
  return job_.loop.watch(job_.caller->fd(), EPOLLIN, [this] { on_caller(); });
}

void UserRequests::read_signals() {
  signalfd_siginfo signal{};
  while (read(signals_.get(), &signal, sizeof(signal)) == sizeof(signal)) {
    if (signal.ssi_signo != SIGCHLD) on_signal(static_cast<int>(signal.ssi_signo));
  }
}

void UserRequests::on_signal(int signal) {
  // Nobody would go on with the ranks' and the agents' time.
  if (job_.plan.dialled && signal == SIGTSTP) return;
  if (signal == SIGWINCH) {
    job_.agents.send_all(
        agent::Resize{.out = terminal_size(STDOUT_FILENO), .err = terminal_size(STDERR_FILENO)});
  }
  job_.course.on_signal(signal, monotonic_now());
  orders_.carry_out();
  suspends_ = signal == SIGTSTP || (suspends_ && signal != SIGCONT);
}

void UserRequests::on_question() {
  job_.control->poll();
  answer();
  if (job_.control->asked(Question::kStacks)) job_.course.ask_stacks(monotonic_now());
  while (const auto asked = job_.control->next_change())
    job_.control->answer_change(asked->first,
                                job_.course.change_servers(asked->second, monotonic_now()));
  if (job_.control->asked(Question::kTrace))
    job_.course.ask_trace(job_.control->steps(), monotonic_now());
}

void UserRequests::answer() {
  if (job_.control == nullptr) return;
  for (const Question question : {Question::kPicture, Question::kEnd}) {
    const bool has_come = question == Question::kPicture || job_.display.is_over();
    if (has_come && job_.control->asked(question))
      job_.control->answer(question, job_.display.text(monotonic_now()));
  }
  if (!job_.control->asked(Question::kPage)) return;
  const auto page = job_.display.page();
  job_.control->answer(Question::kPage, page.ok() ? *page : refused(page.status().message()));
}

void UserRequests::on_caller() {
  if (!job_.caller->gone()) return;
  job_.loop.forget(job_.caller->fd());
  job_.course.on_caller_gone(monotonic_now());
}

}  // namespace corro::launch
