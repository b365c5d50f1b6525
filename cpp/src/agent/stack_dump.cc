#include "agent/stack_dump.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <sstream>

#include "agent/processes.h"
#include "diagnosis/stacks.h"

namespace corro::agent {
namespace {

/// faulthandler writes its lines one by one.
constexpr Duration kSettled = std::chrono::milliseconds(50);
constexpr size_t kMostPrinted = size_t{1} << 20U;

/// The path of py-spy; "" if there is none.
std::string find_spy(const std::string& folder) {
  std::istringstream path(folder + ":" + value_of(read_variables(), "PATH"));
  for (std::string one; std::getline(path, one, ':');) {
    const std::string program = one + "/py-spy";
    if (!one.empty() && access(program.c_str(), X_OK) == 0) return program;
  }
  return "";
}

/// Of the process and those below it: the first one that answers, else the process.
pid_t find_python(pid_t pid) {
  if (answers(pid)) return pid;
  const auto below = descendants_of(pid);
  const auto found = std::ranges::find_if(below, answers);
  return found == below.end() ? pid : *found;
}

std::string why_silent(pid_t pid, bool can_answer) {
  const char state = process_state(pid);
  if (state == 'T' || state == 't') return "stopped by a signal";
  if (state == 'Z' || state == '?') return "its process has ended";
  if (!can_answer) return fmt::format("not (yet) a Python process with corro (state {})", state);
  return fmt::format("no answer for {} s (state {})",
                     std::chrono::duration_cast<std::chrono::seconds>(kStackPatience).count(),
                     state);
}

}  // namespace

void StackDumps::ask(const Subject& about, pid_t pid, const std::string& folder, Time now) {
  if (std::ranges::find(dumps_, about, &Dump::about) != dumps_.end()) return;
  Dump& dump = dumps_.emplace_back(Dump{.about = about, .pid = find_python(pid)});
  dump.until = now + kStackPatience;
  if (const std::string spy = find_spy(folder); !spy.empty()) start_spy(dump, spy);
  if (!dump.spy) ask_itself(dump, now);
}

void StackDumps::start_spy(Dump& dump, const std::string& program) {
  const WorkerSpec spec{.program = program,
                        // The rank is not even paused.
                        .arguments = {"py-spy", "dump", "--nonblocking", "--full-filenames",
                                      "--pid", std::to_string(dump.pid)},
                        .environment = read_variables(),
                        .processors = {},
                        .out_terminal = std::nullopt,
                        .err_terminal = std::nullopt};
  auto spy = start_worker(spec, mask_);
  if (spy.ok()) dump.spy = std::move(*spy);
}

void StackDumps::ask_itself(Dump& dump, Time now) {
  dump.asked = ask_threads(dump.pid);
  dump.until = now + kStackPatience;
  dump.settled = now + kSettled;
}

void StackDumps::poll(Time now, const std::function<void(const Subject&, Stack)>& tell) {
  for (auto dump = dumps_.begin(); dump != dumps_.end();) {
    if (auto stack = poll(*dump, now)) {
      tell(dump->about, std::move(*stack));
      dump = dumps_.erase(dump);
    } else {
      ++dump;
    }
  }
}

std::optional<Stack> StackDumps::poll(Dump& dump, Time now) {
  if (dump.spy) return read_spy(dump, now);
  if (!dump.asked.stack.valid()) return Stack{.text = "", .missing = why_silent(dump.pid, false)};
  std::string text = read_threads(dump.asked);
  if (text.size() != dump.seen) {
    dump.seen = text.size();
    dump.settled = now + kSettled;
  }
  if (!text.empty() && now >= dump.settled) return Stack{.text = std::move(text), .missing = ""};
  if (now < dump.until) return std::nullopt;
  return Stack{.text = "", .missing = why_silent(dump.pid, true)};
}

/// What py-spy prints, until it ends or takes too long. It may lack the permission, or not know
/// this Python: then the process is asked itself.
std::optional<Stack> StackDumps::read_spy(Dump& dump, Time now) {
  std::array<char, 4096> buffer{};
  ssize_t count = 0;
  while ((count = read(dump.spy->out.get(), buffer.data(), buffer.size())) > 0) {
    if (dump.printed.size() < kMostPrinted)
      dump.printed.append(buffer.data(), static_cast<size_t>(count));
  }
  const bool ended = count == 0;
  if (!ended && now < dump.until) return std::nullopt;
  if (!ended) kill(dump.spy->pid, SIGKILL);  // Not reaped yet: it holds the pipe.
  dump.spy.reset();
  if (!diagnosis::parse_stacks(dump.printed).empty())
    return Stack{.text = std::move(dump.printed), .missing = ""};
  ask_itself(dump, now);
  return std::nullopt;
}

}  // namespace corro::agent
