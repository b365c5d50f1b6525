// `corro top`: asks a running job once a second, and redraws what it answers.
//
//   watching   a picture is asked for, or the next second is waited for; keys scroll
//   over       the launcher has sent how its job ended: that is left on the normal screen
//   gone       it has ended and sent nothing, since it was killed: the last picture is left there
//   left       q, or a signal: nothing is left there
//
// Nothing here waits for the launcher: one that hangs is said in the last line, and q still quits.
#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>

#include "app/choose_job.h"
#include "app/commands.h"
#include "app/full_screen.h"
#include "app/keys.h"
#include "dashboard/job_screen.h"
#include "io/loop.h"
#include "launch/rank_start.h"

namespace corro::app {
namespace {

using dashboard::BoardCopy;
using launch::Inquiry;
using launch::Question;

constexpr Duration kPause = std::chrono::seconds(1);
constexpr Duration kLongAnswer = std::chrono::seconds(3);

sigset_t heard_signals() {
  sigset_t heard{};
  sigemptyset(&heard);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGWINCH})
    sigaddset(&heard, signal);
  return heard;
}

/// What is there before the terminal is taken: all that fails is one line.
struct Opened {
  launch::RunningJob job;
  io::Loop loop;
  Inquiry end;  ///< Open all the time: so the end is not missed.
  BoardCopy board;
  io::Fd signals;
  bool colour = false;
};

Result<Opened> open_top(const std::string& wanted, const Variables& environment) {
  CORRO_ASSIGN(auto job, choose_job(launch::find_jobs(), wanted, "corro top"));
  CORRO_ASSIGN(auto end, Inquiry::create(job, Question::kEnd));
  CORRO_ASSIGN(const std::string answer, launch::ask(job, Question::kPicture, kAnswerPatience));
  CORRO_ASSIGN(auto board, dashboard::read_job(answer));
  CORRO_ASSIGN(auto loop, io::Loop::create());
  const sigset_t heard = heard_signals();
  sigprocmask(SIG_BLOCK, &heard, nullptr);
  return Opened{.job = std::move(job),
                .loop = std::move(loop),
                .end = std::move(end),
                .board = std::move(board),
                .signals = io::Fd(signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK)),
                .colour = value_of(environment, "NO_COLOR").empty()};
}

/// Loop-confined.
class Top {
 public:
  explicit Top(Opened opened) : opened_(std::move(opened)) {}

  /// The exit status.
  Result<int> run();

 private:
  enum class Course : uint8_t { kWatching, kOver, kGone, kLeft };

  void ask(Time now);
  void take_picture();
  void take_end();
  void take_keys();
  void take_signals();
  void on_signal(int signal);
  void scroll(Key key);
  void draw();
  [[nodiscard]] dashboard::ScreenOptions options() const;
  void print_last() const;

  Opened opened_;
  std::optional<Inquiry> picture_;  ///< None: the next second is waited for.
  Time asked_ = monotonic_now();    ///< For a picture; that one is shown, unless picture_ is open.
  size_t scroll_ = 0;
  KeyReader keys_;
  Course course_ = Course::kWatching;
  int exit_ = 0;
  FullScreen screen_;
};

Result<int> Top::run() {
  CORRO_TRY(opened_.loop.watch(STDIN_FILENO, EPOLLIN, [this] { take_keys(); }));
  CORRO_TRY(opened_.loop.watch(opened_.signals.get(), EPOLLIN, [this] { take_signals(); }));
  CORRO_TRY(opened_.loop.watch(opened_.end.poll_fd(), EPOLLIN, [this] { take_end(); }));
  draw();
  for (Time next = asked_ + kPause; course_ == Course::kWatching;) {
    opened_.loop.turn(next);
    const Time now = monotonic_now();
    if (now < next) continue;
    next = now + kPause;
    picture_ ? draw() : ask(now);
  }
  screen_.leave();
  if (course_ != Course::kLeft) print_last();
  return exit_;
}

/// If the job has ended, the other question is answered.
void Top::ask(Time now) {
  asked_ = now;
  auto inquiry = Inquiry::create(opened_.job, Question::kPicture);
  if (!inquiry.ok()) return;
  picture_ = std::move(*inquiry);
  const Status watched =
      opened_.loop.watch(picture_->poll_fd(), EPOLLIN, [this] { take_picture(); });
  if (!watched.ok()) picture_.reset();
}

void Top::take_picture() {
  if (course_ != Course::kWatching) return;  // The end has come in the same turn.
  const auto text = picture_->read();
  if (text.ok() && text->empty()) return;
  opened_.loop.forget(picture_->poll_fd());
  picture_.reset();
  auto board = text.ok() ? dashboard::read_job(*text) : text.status();
  if (!board.ok()) return;
  opened_.board = std::move(*board);
  draw();
}

void Top::take_end() {
  const auto text = opened_.end.read();
  if (text.ok() && text->empty()) return;
  opened_.loop.forget(opened_.end.poll_fd());
  auto board = text.ok() ? dashboard::read_job(*text) : text.status();
  course_ = board.ok() ? Course::kOver : Course::kGone;
  if (board.ok()) opened_.board = std::move(*board);
}

void Top::take_keys() {
  std::array<char, 256> bytes{};
  const ssize_t count = read(STDIN_FILENO, bytes.data(), bytes.size());
  if (count <= 0) course_ = Course::kLeft;
  for (const Key key : keys_.feed({bytes.data(), static_cast<size_t>(std::max<ssize_t>(count, 0))}))
    key == Key::kQuit ? void(course_ = Course::kLeft) : scroll(key);
}

void Top::scroll(Key key) {
  const size_t most = dashboard::most_scroll(opened_.board, options());
  const bool is_page = key == Key::kPageUp || key == Key::kPageDown;
  const bool is_up = key == Key::kUp || key == Key::kPageUp;
  const size_t by =
      is_page ? std::max<size_t>(1, dashboard::ranks_at_once(opened_.board, options())) : 1;
  scroll_ = std::min(scroll_, most);
  scroll_ = is_up ? scroll_ - std::min(scroll_, by) : std::min(scroll_ + by, most);
  draw();
}

void Top::take_signals() {
  signalfd_siginfo signal{};
  while (read(opened_.signals.get(), &signal, sizeof(signal)) == sizeof(signal))
    on_signal(static_cast<int>(signal.ssi_signo));
}

void Top::on_signal(int signal) {
  if (signal == SIGTSTP) {
    screen_.leave();
    kill(getpid(), SIGSTOP);
    screen_.enter();
  }
  if (signal == SIGTSTP || signal == SIGWINCH) return draw();
  course_ = Course::kLeft;
  exit_ = diagnosis::kSignalExit + signal;
}

dashboard::ScreenOptions Top::options() const {
  constexpr unsigned short kColumns = 80;
  constexpr unsigned short kLines = 24;
  const winsize size = launch::terminal_size(STDOUT_FILENO).value_or(winsize{});
  dashboard::ScreenOptions options{.width = size.ws_col > 0 ? size.ws_col : kColumns,
                                   .height = size.ws_row > 0 ? size.ws_row : kLines,
                                   .scroll = scroll_,
                                   .colour = opened_.colour,
                                   .footer = "q quits"};
  const Duration waited = picture_ ? monotonic_now() - asked_ : Duration::zero();
  if (waited >= kLongAnswer)
    options.footer = fmt::format("the launcher has not answered for {} s; q quits",
                                 std::chrono::floor<std::chrono::seconds>(waited).count());
  else if (dashboard::most_scroll(opened_.board, options) > 0)
    options.footer = "q quits; arrow keys and PageUp, PageDown show other ranks";
  return options;
}

void Top::draw() {
  const dashboard::ScreenOptions how = options();
  if (!screen_.draw(dashboard::job_lines(opened_.board, how), how.height)) course_ = Course::kLeft;
}

/// On the normal screen, where the shell's next line has to find room.
void Top::print_last() const {
  dashboard::ScreenOptions how = options();
  how.footer.clear();
  how.scroll = 0;
  how.height = std::max<size_t>(how.height, 2) - 1;
  for (const std::string& line : dashboard::job_lines(opened_.board, how)) fmt::print("{}\n", line);
  if (course_ == Course::kGone) fmt::print("the job is no more; its launcher left no last word\n");
}

}  // namespace

int top_command(const std::string& job, const Variables& environment) {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) {
    complain("corro top: this is no terminal; corro status prints the same once");
    return diagnosis::kUsageExit;
  }
  auto opened = open_top(job, environment);
  const auto exit = opened.ok() ? Top(std::move(*opened)).run() : opened.status();
  if (exit.ok()) return *exit;
  complain("corro top: " + exit.status().message());
  return 1;
}

}  // namespace corro::app
