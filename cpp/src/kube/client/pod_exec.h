// ExecStream: a command that runs in a container of a pod, its input and its output.
//
//   const ExecRequest request{.pod = {"default", "job-head"}, .container = "head",
//                             .command = {"tar", "-x"}, .has_input = true};
//   CORRO_ASSIGN(auto exec, ExecStream::open(client, request, show, stop));
//   while (!archive.empty() && !exec->exit_code()) {
//     archive.remove_prefix(exec->write_input(archive));
//     CORRO_TRY(exec->turn(Time::never()));
//   }
//   CORRO_TRY(exec->close_input());
//   CORRO_ASSIGN(const int exit_code, exec->wait());
//
// The API server carries all of it over one WebSocket. A message is the number of a channel and its
// bytes:
//
//   channel  direction   bytes
//   0        to server   the command's standard input
//   1        to client   its standard output, or what its terminal shows
//   2        to client   its standard error
//   3        to client   a Status in JSON: how the command ended, or why it did not begin; the last
//                        message of all
//   4        to server   {"Width":80,"Height":24}: the size of the terminal
//   255      to server   the number of a channel that gets no more bytes; only v5
//
// Servers from Kubernetes 1.30 on speak v5.channel.k8s.io; older ones v4, where an input cannot be
// ended.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kube/client/client.h"
#include "kube/client/websocket.h"

namespace corro::kube {

struct ExecRequest {
  ObjectKey pod;
  std::string container;             ///< "" if the pod has no other.
  std::vector<std::string> command;  ///< Program and words; no shell reads them.
  bool has_input = false;            ///< Else the command reads nothing.
  bool has_terminal = false;         ///< Then the standard error comes with the output.
};

/// The numbers of their channels.
enum class ExecOutput : uint8_t { kOut = 1, kError = 2 };

/// Loop-confined. The connection ends with the object; the command does not notice, unless it reads
/// or writes.
class ExecStream {
 public:
  using Receive = std::function<Status(ExecOutput from, std::string_view bytes)>;

  /// Asks the API server for the command, and blocks until it has answered. `until.deadline` is for
  /// the answer alone; `until.stop` also ends every later turn(). Must not outlive `client`.
  /// PERMISSION_DENIED "pods default/a: exec: the right to create pods/exec is missing: ...";
  /// NOT_FOUND if there is no such pod, or the container does not run; INVALID_ARGUMENT if the pod
  /// has no such container; others as Client.
  [[nodiscard]] static Result<std::unique_ptr<ExecStream>> open(Client& client,
                                                                const ExecRequest& request,
                                                                Receive receive,
                                                                const Until& until);
  /// For open().
  ExecStream(std::unique_ptr<WebSocket> socket, std::string name, Receive receive)
      : socket_(std::move(socket)), name_(std::move(name)), receive_(std::move(receive)) {}

  /// Takes as many bytes as there is room for, 256 KiB at most, and returns how many; turn() makes
  /// room. 0 after the end.
  [[nodiscard]] size_t write_input(std::string_view bytes);
  /// Ends the command's input behind the bytes that were written. FAILED_PRECONDITION if the server
  /// speaks v4.
  [[nodiscard]] Status close_input();
  void resize(uint16_t columns, uint16_t rows);

  /// Waits until there is something to do or it is `until`, and does it: sends input and hands
  /// output to `receive`, which holds up everything while it runs. Returns at once after the end.
  /// Fails as WebSocket::turn(), and with the server's words if the command did not begin.
  [[nodiscard]] Status turn(Time until);
  /// The command's exit code once it has ended; 128 + N for signal N.
  [[nodiscard]] std::optional<int> exit_code() const { return exit_code_; }
  /// Blocks until the command has ended, and returns its exit code. DEADLINE_EXCEEDED after the
  /// deadline; the stop of open() ends this too.
  [[nodiscard]] Result<int> wait(Time deadline = Time::never());
  /// Is readable while turn() has something to do. A loop has to forget it after the end and after
  /// a failure.
  [[nodiscard]] int fd() const { return socket_->fd(); }

 private:
  [[nodiscard]] Status take(std::string_view message);
  [[nodiscard]] Status take_status(std::string_view piece);
  void send(uint8_t channel, std::string_view bytes);

  const std::unique_ptr<WebSocket> socket_;
  const std::string name_;
  const Receive receive_;
  std::string status_;  ///< Of channel 3, as far as it has come.
  std::optional<int> exit_code_;
};

/// The exit code that a Status of channel 3 tells, or the failure it tells. Pure.
[[nodiscard]] Result<int> exit_code_of(const Json& status, const std::string& name);

}  // namespace corro::kube
