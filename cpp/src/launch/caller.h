// Caller: the Python program whose corro.run() has started this launcher, at the other end of a
// socket that the launcher has inherited. Bytes: docs/wire.md.
//
//   caller -> launcher    the call, for every rank
//   launcher -> caller    what each rank returns, as it comes; at last how the job has ended
//
// Nothing of it is kept here, and nothing but Python reads it. The end of the socket is that of the
// other side: a job without its caller is stopped.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "diagnosis/report.h"
#include "io/fd.h"
#include "launch/options.h"

namespace corro::launch {

/// How a job ended, for the caller.
struct CallEnd {
  Code code = Code::kOk;  ///< Else no rank was started, or the job was stopped: none is to blame.
  int exit = 0;
  std::vector<size_t> places = {};  ///< Who has returned something, by rank, if all went well.
  std::string text;                 ///< What would have been the last thing on the screen.
  std::optional<diagnosis::FailureReport> failure = std::nullopt;
};

/// Bytes of a rank's result with what comes before them. Pure.
[[nodiscard]] std::string frame_result(int rank, std::string_view bytes);
/// The last that a caller hears. Pure.
[[nodiscard]] std::string frame_end(const CallEnd& end);

/// Loop-confined.
class Caller {
 public:
  /// Takes over the inherited socket, which this process's children do not get. INVALID_ARGUMENT if
  /// it is none.
  static Result<Caller> create(int fd);
  [[nodiscard]] int fd() const { return socket_.get(); }

  /// The next piece of the call; "" after the last. Blocks for the caller, which sends without
  /// waiting for anything. UNAVAILABLE once it has gone.
  Result<std::string> read_call();
  /// Whether it has gone. Meant for after the call was read; never blocks.
  [[nodiscard]] bool gone() const;

 private:
  explicit Caller(io::Fd socket) : socket_(std::move(socket)) {}
  Status read_exactly(char* into, size_t count);

  io::Fd socket_;
  std::optional<uint64_t> left_;  ///< Bytes of the call; none: its length is not known yet.
};

/// Says why no job was started: on stderr, or to the caller. Returns the exit status.
int refuse_job(const RunOptions& options, const Status& status);

}  // namespace corro::launch
