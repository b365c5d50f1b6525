// ControlSocket: where a running job answers other commands of its user: `corro stacks`. Bytes:
// docs/wire.md.
//
//   launcher:  auto control = ControlSocket::create(job_id).value();
//              ... when poll_fd() is readable: control->poll(); if (control->asked()) ...
//              control->answer(text);
//   command:   for (const RunningJob& job : find_jobs()) ...   ask_stacks(job, patience)
//
// An abstract Unix socket: it is gone with the launcher, and both sides look whose process the
// other one is.
#pragma once

#include <sys/types.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/event.h"
#include "io/fd.h"

namespace corro::launch {

/// Never blocks. Loop-confined.
class ControlSocket {
 public:
  static Result<std::unique_ptr<ControlSocket>> create(const std::string& job_id);

  /// Readable while poll() has something to do.
  [[nodiscard]] int poll_fd() const { return epoll_.fd(); }
  /// Takes what is asked, and writes what could not be written before.
  void poll();
  /// Somebody waits for answer().
  [[nodiscard]] bool asked() const;
  /// Tells it to all who wait, and hangs up.
  void answer(const std::string& text);

 private:
  struct Client {
    io::Fd fd;
    bool asked = false;
    std::deque<std::string> unsent = {};  ///< After the last of it the connection ends.
  };

  ControlSocket(io::Fd listener, io::Epoll epoll)
      : listener_(std::move(listener)), epoll_(std::move(epoll)) {}
  void accept_waiting();
  /// False if the client has to go.
  bool serve(Client& client);
  bool flush(Client& client);

  io::Fd listener_;
  io::Epoll epoll_;
  std::map<int, Client> clients_;  ///< By descriptor.
};

/// A job of this user that runs on this machine.
struct RunningJob {
  std::string socket;
  pid_t launcher = 0;
  std::string id;
  std::string command;  ///< Of the launcher, as it was typed.
};

/// In the order of their launchers' pids.
[[nodiscard]] std::vector<RunningJob> find_jobs();
/// The stacks of its ranks as text; blocks. UNAVAILABLE if the job has ended, DEADLINE_EXCEEDED.
[[nodiscard]] Result<std::string> ask_stacks(const RunningJob& job, Duration patience);

}  // namespace corro::launch
