// One rank, or table server, as its agent sees it: its process, its output, its recorders, its end.
//
// The process and its two streams end each on their own: children of the rank may hold a stream
// open. Its flight recorder comes with its hello, and can be read after its end, too; so does the
// recorder of its tables, which is read while it runs. A rank for
// which another one waited in vain is asked where it is: the error that it had printed until then
// is kept, since what it prints while it is stopped is no cause.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "agent/messages.h"
#include "agent/whereabouts.h"
#include "agent/worker.h"
#include "diagnosis/verdict.h"
#include "io/fd.h"
#include "io/output.h"

namespace corro::agent {

/// Loop-confined.
class RankProcess {
 public:
  explicit RankProcess(Worker worker);

  [[nodiscard]] pid_t pid() const { return end_.pid; }
  [[nodiscard]] bool running() const { return !end_.ended; }
  /// The process with the engine: it may be a child of the worker, such as a shell script that
  /// starts Python. The worker if there is none yet.
  [[nodiscard]] pid_t python() const;
  /// The descriptor of a stream; -1 once it has ended.
  [[nodiscard]] int fd(io::Output stream) const {
    return streams_[static_cast<size_t>(stream)].get();
  }

  /// Reads what is there into `buffer`; keeps the end of stderr. Empty: nothing now, or the stream
  /// has ended and was closed.
  [[nodiscard]] std::string_view read(io::Output stream, std::span<char> buffer);
  /// Bytes for its standard input, and whether they are the last; they wait until it reads.
  void give(std::string_view bytes, bool ends);
  /// Writes what can be written of them. Returns how many were taken: of a rank that reads no more
  /// all are.
  size_t flush_input();
  /// Where they are written; -1: nowhere.
  [[nodiscard]] int input_fd() const { return in_.get(); }
  /// Sends a signal to the worker alone, if it runs.
  void send(int signal) const;
  void set_terminal_size(io::Output stream, const winsize& size) const;
  void set_flight(io::Fd flight) { flight_ = std::move(flight); }
  /// Of the table server that it is, or has on a thread. The first one counts: a second server of the
  /// same process, or of a child, is refused.
  void set_tables(io::Fd tables) {
    if (!tables_.valid()) tables_ = std::move(tables);
  }

  /// Another rank has given up waiting for this one: asks it where it is, if it runs and was not
  /// asked before. What it prints about its end from now on is no cause.
  void ask();

  /// Kills it, and what is below it now. A process that has left its parent is ended with the others
  /// by FENCE.
  void kill_all();

  /// `stopped`: it had been told that the job is being ended, or was killed by its agent.
  void set_ended(int status, bool stopped);
  void set_out_of_memory(std::string limit) { end_.out_of_memory = std::move(limit); }
  /// What is known now, but for its number, with the crash read from stderr and the flight recorder read again: of its
  /// operations the one that tells most and the last one.
  [[nodiscard]] diagnosis::RankEnd describe() const;
  /// The same of a rank that runs, with its tables, and whether a signal has stopped it.
  [[nodiscard]] diagnosis::RankEnd look() const;
  /// What its flight recorder has of its last `steps` steps (obs::trace_flight). None: it has no
  /// engine.
  [[nodiscard]] std::optional<obs::ProcessTrace> trace(uint32_t steps) const;

 private:
  diagnosis::RankEnd end_;
  std::array<io::Fd, io::kOutputs.size()> streams_;  ///< By io::Output.
  io::Fd in_, flight_, tables_;
  std::string input_;        ///< Not written yet.
  bool input_ends_ = false;  ///< After it.
  std::optional<Whereabouts> asked_;
  std::string stderr_tail_;
};

}  // namespace corro::agent
