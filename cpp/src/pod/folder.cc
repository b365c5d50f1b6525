#include "pod/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <utility>

#include "agent/message_pipe.h"
#include "agent/sync_target.h"
#include "io/fd.h"

namespace corro::pod {
namespace {

constexpr Duration kLongSilence = std::chrono::seconds(20);
constexpr timespec kFolderPause{.tv_sec = 0, .tv_nsec = 50'000'000};

/// In a folder that the head's pod mounts.
std::string mark_of(const PodSettings& settings) {
  return fmt::format("{}/corro-{}-folder", value_of(read_variables(), "TMPDIR", "/tmp"),
                     settings.identity.job_uid);
}

bool is_there(const PodSettings& settings) { return access(mark_of(settings).c_str(), F_OK) == 0; }

/// Is touched whenever something comes.
std::string sign_of(const PodSettings& settings) { return mark_of(settings) + "-comes"; }

/// When it was touched last; 0: never.
int64_t last_sign(const PodSettings& settings) {
  constexpr int64_t kNanoseconds = 1'000'000'000;
  struct stat there{};
  if (stat(sign_of(settings).c_str(), &there) != 0) return 0;
  return there.st_mtim.tv_sec * kNanoseconds + there.st_mtim.tv_nsec;
}

void say_silence(const PodSettings& settings, bool goes_on) {
  const char* then = goes_on ? "leads without it: workers that come now do not get it"
                             : "starts nothing without it";
  fmt::print(stderr,
             "corro: nobody brings {}, as the `corro run --on kubernetes --sync` that made the job "
             "does while it runs; the head {}\n",
             settings.sync, then);
}

/// One conversation. Loop-confined.
class Reception {
 public:
  explicit Reception(const PodSettings& settings)
      : settings_(settings),
        pipe_(io::Fd(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)),
              io::Fd(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3))),
        sign_(open(sign_of(settings).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)),
        target_([this](agent::MessageBody body) { say(std::move(body)); }) {}

  Status run() {
    while (!is_over_ || pipe_.unsent()) {
      (void)futimens(sign_.get(), nullptr);
      pipe_.flush();
      if (target_.busy()) {
        target_.advance();
      } else {
        wait();
      }
      CORRO_TRY(pipe_.read());
      while (const auto message = pipe_.take()) CORRO_TRY(hear(message->body));
      if (pipe_.ended() && !is_over_)
        return {Code::kUnavailable, "the connection has ended before all of it was there"};
    }
    return outcome_;
  }

 private:
  void wait() const {
    const auto out = static_cast<short>(pipe_.unsent() ? POLLOUT : 0);
    pollfd fds[] = {{.fd = pipe_.in(), .events = POLLIN, .revents = 0},
                    {.fd = pipe_.out(), .events = out, .revents = 0}};
    (void)poll(fds, 2, -1);
  }

  Status hear(const agent::MessageBody& body) {
    if (const auto* sync = std::get_if<agent::Sync>(&body);
        sync != nullptr && sync->root != settings_.sync)
      return {Code::kInvalidArgument,
              fmt::format("the folder of this job is {}, not {}", settings_.sync, sync->root)};
    std::visit([this](const auto& one) { target_.hear(one); }, body);
    return {};
  }

  void say(agent::MessageBody body) {
    if (const auto* lacking = std::get_if<agent::Lacking>(&body))
      is_over_ = is_over_ || lacking->files == 0;
    if (const auto* refused = std::get_if<agent::Refused>(&body)) {
      is_over_ = true;
      outcome_ = Status(refused->code, refused->why);
    }
    pipe_.send({{}, std::move(body)});
  }

  const PodSettings& settings_;
  agent::MessagePipe pipe_;
  const io::Fd sign_;
  agent::SyncTarget target_;
  bool is_over_ = false;
  Status outcome_;
};

}  // namespace

bool Silence::is_long(Time now, int64_t sign) {
  if (sign != std::exchange(sign_, sign)) since_ = now;
  return now >= since_ + kLongSilence;
}

Result<bool> wait_for_folder(const PodSettings& settings, int& signal) {
  const bool is_replacement = settings.is_elastic() && settings.identity.generation > 0;
  sigset_t heard;
  sigset_t before;
  sigemptyset(&heard);
  for (const int number : {SIGTERM, SIGINT}) sigaddset(&heard, number);
  sigprocmask(SIG_BLOCK, &heard, &before);
  if (!is_there(settings)) {
    fmt::print(stderr, "corro head: waits for {}, which `corro run --sync` brings\n",
               settings.sync);
  }
  Silence silence(monotonic_now());
  bool was_said = false;
  while (!is_there(settings)) {
    const bool is_long = silence.is_long(monotonic_now(), last_sign(settings));
    if (is_long && !std::exchange(was_said, true)) say_silence(settings, is_replacement);
    if (is_long && is_replacement) break;
    signal = sigtimedwait(&heard, nullptr, &kFolderPause);
    if (signal > 0) return Status(Code::kCancelled, "asked to end");
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return is_there(settings);
}

int receive_folder(const PodSettings& settings) {
  signal(SIGPIPE, SIG_IGN);
  const Status status = settings.sync.empty()
                            ? Status(Code::kFailedPrecondition, "this job expects no folder")
                            : Reception(settings).run();
  if (status.ok() && std::ofstream(mark_of(settings)).put('\n').good()) return 0;
  fmt::print(stderr, "corro receive: {}\n",
             status.ok() ? mark_of(settings) + ": cannot be written" : status.message());
  return 1;
}

}  // namespace corro::pod
