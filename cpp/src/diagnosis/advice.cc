#include "diagnosis/advice.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <string_view>

namespace corro::diagnosis {
namespace {

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// `error`: of a rank that gave up. Below corro-horovod another variable is the deadline.
std::string_view more_time(const std::string& error) {
  return has(error, "HorovodInternalError")
             ? "raise HOROVOD_STALL_SHUTDOWN_TIME_SECONDS if it is only slow"
             : "raise CORRO_TIMEOUT (or torch's timeout=) if it is only slow";
}

std::string see_what_it_did(const std::string& whom, const std::string& error) {
  return fmt::format("see what {} did: its log, or `corro doctor` while it hangs; {}", whom,
                     more_time(error));
}

/// Of a rank that others gave up waiting for, one of them with this error.
std::string advise_about_missing(const RankEnd& end, const std::string& error) {
  if (end.paused) {
    const int pid = end.flight ? end.flight->pid : end.pid;
    return fmt::format("find out who stopped it; `kill -CONT {}` lets such a process go on", pid);
  }
  const std::string rank = fmt::format("rank {}", end.rank);
  if (end.at.file.empty() && end.crash.where.file.empty()) return see_what_it_did(rank, error);
  return fmt::format("see why {} stayed there; {}", rank, more_time(error));
}

/// "CORRO_TIMEOUT" of "... CORRO_TIMEOUT=x: expected a number ..."; "" if it is no such error.
std::string wrong_variable(const std::string& error) {
  const size_t name = error.find("CORRO_");
  if (name == std::string::npos) return "";
  const size_t end = error.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", name);
  return has(error, ": expected ") && end != std::string::npos ? error.substr(name, end - name)
                                                               : "";
}

/// By what the rank said before its end; "" if that says nothing special.
std::string advise_by_error(const std::string& error) {
  const auto raised = [&error](std::string_view name) {
    return has(error, fmt::format("{}: ", name));
  };
  if (raised("ResourceExhaustedError")) {
    return "use a smaller batch or fewer ranks, or raise the limit";
  }
  if (has(error, "corro has message version"))
    return "install the corro of the agent, or of the operator's image, where the ranks run";
  if (has(error, "ranks have different parameters")) return "build the same model on every rank";
  if (raised("MismatchError")) {
    return "make every rank call the same operation with the same shape and type";
  }
  if (has(error, "out of memory")) return "use a smaller batch or model";
  if (has(error, "'corro' is not a package"))
    return "rename your own corro.py: Python finds it before the package";
  if (has(error, "No module named 'corro'")) {
    return "activate the environment that corro is in, or leave `python` out: `corro run` then "
           "takes the one beside it";
  }
  if (error.starts_with("ModuleNotFoundError") || error.starts_with("ImportError") ||
      has(error, ": No module named ")) {
    return "install what is missing into the environment that runs this program";
  }
  if (has(error, "call corro.init() first")) return "call corro.init() before the first operation";
  if (has(error, "CORRO_LISTEN=") && has(error, "Cannot assign requested address"))
    return "set CORRO_LISTEN to an address of this host";
  if (const std::string name = wrong_variable(error); !name.empty()) {
    return fmt::format("set {} to what is expected, or unset it", name);
  }
  // Python's argparse, which has no traceback.
  if (has(error, ".py: error: ")) return "check the program's own arguments: its --help lists them";
  if (has(error, "can't open file '")) return "check that path: it is where Python looked";
  return "";
}

/// Of input() and of a debugger: rank 0 alone has a standard input.
bool lacked_input(const RankEnd& end) {
  return end.crash.error.starts_with("EOFError: EOF when reading a line") ||
         end.crash.error.starts_with("bdb.BdbQuit");
}

}  // namespace

std::string advise(const RankEnd& end, const Verdict& verdict, std::span<const RankEnd> ends) {
  if (!verdict.waited.empty()) {
    const RankEnd* const waiter = find_rank(ends, verdict.waited.front());
    return advise_about_missing(end, waiter == nullptr ? "" : waiter->crash.error);
  }
  if (verdict.elsewhere >= 0) {
    return "make every rank call the same operations in the same order, or join() when it has no "
           "more batches";
  }
  if (!end.lost.empty()) {
    return "see whether that host runs, the network and ssh lead to it, and who ended its agent "
           "(rank-keeper); corro doctor -H checks hosts";
  }
  if (!end.out_of_memory.empty()) return "use a smaller batch or fewer ranks, or raise the limit";
  if (lacked_input(end)) {
    return "ask for input on rank 0 only; the other ranks have none";
  }
  const std::string& error = end.crash.error.empty() ? end.crash.last_line : end.crash.error;
  if (const std::string advice = advise_by_error(error); !advice.empty()) return advice;
  if (verdict.absent >= 0) {
    return fmt::format(
        "rank {} had left without an error; see its log, and make every rank call the same "
        "operations, or join() when it has no more batches",
        verdict.absent);
  }
  if (gave_up(end)) {
    const int slow = awaited_by(end);
    return see_what_it_did(slow < 0 ? "every rank" : fmt::format("rank {}", slow), error);
  }
  if (is_witness(end)) return "look into the log of the rank that it names";
  const bool by_signal = end.ended && WIFSIGNALED(end.status) && !end.stopped;
  if (by_signal && WTERMSIG(end.status) == SIGKILL) {
    return "find out who killed it: the out-of-memory killer, a scheduler, an administrator";
  }
  if (by_signal && WTERMSIG(end.status) == SIGINT) return "find out who interrupted it";
  if (by_signal) return "read the end of the log; a debugger on a core dump shows more";
  if (!end.crash.where.file.empty()) return "mend that line; the full traceback is in the log";
  return "read the end of the log";
}

}  // namespace corro::diagnosis
