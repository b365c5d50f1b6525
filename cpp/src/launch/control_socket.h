// ControlSocket: where a running job answers other commands of its user: `corro stacks`, `corro
// trace`, `corro status`, `corro top`, `corro dash`, `corro servers`. Bytes: docs/wire.md.
//
//   launcher:  auto control = ControlSocket::create(job_id).value();
//              ... when poll_fd() is readable: control->poll();
//              if (control->asked(Question::kStacks)) ...
//              control->answer(Question::kStacks, text);
//   command:   for (const RunningJob& job : find_jobs()) ...
//              ask(job, Question::kPicture, patience), or an Inquiry beside other work
//
// A connection is one question. Its course at the launcher:
//
//   open       until a word has come; another word than those of Question, or a change of servers,
//              closes it
//   asked      until answer()
//   answered   until all of the answer is sent; then it is closed
//
// The command may hang up at any time, and is forgotten; a second packet of it is no question, and
// closes the connection.
//
// An abstract Unix socket: it is gone with the launcher, and both sides look whose process the
// other one is.
#pragma once

#include <sys/types.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "io/event.h"
#include "io/fd.h"
#include "launch/servers.h"

namespace corro::launch {

enum class Question : uint8_t {
  kStacks,   ///< The Python stacks of all ranks, as text.
  kPicture,  ///< The job as JSON: what GET /api/job says (docs/dashboard.md).
  kEnd,      ///< The same once the job is over; until then there is no answer.
  kTrace,    ///< What all ranks did in their last steps, as Chrome's trace.
  kPage,     ///< The address of the dashboard, with its token; may be refused().
};

/// Never blocks. Loop-confined.
class ControlSocket {
 public:
  static Result<std::unique_ptr<ControlSocket>> create(const std::string& job_id);

  /// Readable while poll() has something to do.
  [[nodiscard]] int poll_fd() const { return epoll_.fd(); }
  /// Takes what is asked, and writes what could not be written before.
  void poll();
  /// Somebody waits for the answer to this.
  [[nodiscard]] bool asked(Question question) const;
  /// The most steps that anybody wants who waits for a trace; 0: nobody waits for one.
  [[nodiscard]] uint32_t steps() const;
  /// Tells it to all who wait for it, and hangs up.
  void answer(Question question, const std::string& text);
  /// A change that somebody waits for, and who; none: nobody does.
  [[nodiscard]] std::optional<std::pair<int, ServerChange>> next_change();
  /// Tells its outcome to who has asked for it, and hangs up.
  void answer_change(int client, const std::string& text);
  /// Somebody has not taken all of an answer yet.
  [[nodiscard]] bool is_answering() const;

 private:
  struct Client {
    io::Fd fd;
    std::optional<Question> asked = {};
    std::optional<ServerChange> change = {};
    uint32_t steps = 0;                   ///< Of kTrace.
    std::deque<std::string> unsent = {};  ///< After the last of it the connection ends.
  };

  ControlSocket(io::Fd listener, io::Epoll epoll)
      : listener_(std::move(listener)), epoll_(std::move(epoll)) {}
  void accept_waiting();
  /// False if the client has to go.
  bool serve(Client& client);
  static bool take_word(Client& client, BytesView packet);
  bool flush(Client& client);

  io::Fd listener_;
  io::Epoll epoll_;
  std::map<int, Client> clients_;  ///< By descriptor.
};

/// A job of this user that runs on this machine.
struct RunningJob {
  std::string socket = {};
  pid_t launcher = 0;
  std::string id = {};
  std::string command = {};  ///< Of the launcher, as it was typed.
};

/// The job that this process has launched, by its name.
[[nodiscard]] RunningJob own_job(const std::string& job_id);
/// In the order of their launchers' pids.
[[nodiscard]] std::vector<RunningJob> find_jobs();

/// Inquiry: one question to a running job, and its answer. Never blocks. Externally synchronized.
class Inquiry {
 public:
  /// Asks; for a trace, of so many steps. UNAVAILABLE if the job has ended.
  static Result<Inquiry> create(const RunningJob& job, Question question, uint32_t steps = 0);
  static Result<Inquiry> create(const RunningJob& job, const ServerChange& change);

  /// Readable while read() has something to do.
  [[nodiscard]] int poll_fd() const { return socket_.get(); }
  /// Takes what has come; the answer, once that is all, and "" until then. UNAVAILABLE if the job
  /// has ended without one. FAILED_PRECONDITION if it hangs up and goes on: it does not know the
  /// question, or is asked by too many.
  [[nodiscard]] Result<std::string> read();
  /// So many bytes of an answer that is not all there yet.
  [[nodiscard]] size_t received() const { return text_.size(); }
  /// As read(), but waits until the deadline; DEADLINE_EXCEEDED then.
  [[nodiscard]] Result<std::string> wait(Time deadline);

 private:
  static Result<Inquiry> send(const RunningJob& job, std::string_view word);
  Inquiry(RunningJob job, io::Fd socket) : job_(std::move(job)), socket_(std::move(socket)) {}

  RunningJob job_;
  io::Fd socket_;
  std::string text_;
};

/// The answer that something is not to be had, and why.
[[nodiscard]] std::string refused(const std::string& why);

/// The answer to one question; blocks. Fails as an Inquiry does; FAILED_PRECONDITION says what was
/// refused().
[[nodiscard]] Result<std::string> ask(const RunningJob& job, Question question, Duration patience,
                                      uint32_t steps = 0);
/// The same, for a change of servers.
[[nodiscard]] Result<std::string> ask(const RunningJob& job, const ServerChange& change,
                                      Duration patience);

}  // namespace corro::launch
