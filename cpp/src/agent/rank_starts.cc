#include "agent/rank_starts.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "wire/server_number.h"

namespace corro::agent {
namespace {

Variables environment_of(const Start& start) {
  if (!start.adds_environment) return start.environment;
  Variables all = read_variables();
  for (const auto& [name, value] : start.environment) all[name] = value;
  return all;
}

/// `call`: a file with the call that it carries out; -1: none.
WorkerSpec spec_of(const Start& start, int call) {
  return {.program = start.program,
          .arguments = start.arguments,
          .environment = environment_of(start),
          .directory = start.directory,
          .processors = {start.processors.begin(), start.processors.end()},
          .input = start.input,
          .call = call,
          .out_terminal = start.out_terminal,
          .err_terminal = start.err_terminal};
}

}  // namespace

void RankStarts::hear(const Subject& about, const Start& start) {
  if (station_.course.state() != AgentCourse::State::kWatching) return;
  const auto pid = start_rank(about, start);
  if (pid.ok()) return station_.course.on_start(about, *pid);
  station_.commander.send(
      {about, Refused{.code = pid.status().code(), .why = pid.status().message()}});
}

Result<pid_t> RankStarts::start_rank(const Subject& about, const Start& start) {
  CORRO_TRY(station_.course.admit(about));
  CORRO_TRY(workers_.open(start));
  const bool calls = !wire::is_server(about.rank);
  WorkerSpec spec = spec_of(start, calls ? call_.get() : -1);
  // Its host may have had another number when the socket got its name.
  if (spec.environment.contains("CORRO_AGENT")) spec.environment["CORRO_AGENT"] = workers_.name();
  if (spec.program.empty()) CORRO_TRY(name_program(spec));
  return station_.ranks.start(spec);
}

/// It is the host's own.
Status RankStarts::name_program(WorkerSpec& spec) const {
  const auto& dialling = station_.commander.dialling();
  if (!dialling || dialling->program.path.empty())
    return {Code::kInvalidArgument, "nobody has said which program to start"};
  spec.program = dialling->program.path;
  spec.arguments = dialling->program.arguments;
  return {};
}

void RankStarts::hear(const Subject& /*about*/, const Call& call) {
  if (!call_.valid()) call_.reset(memfd_create("corro-call", MFD_CLOEXEC));
  std::string_view rest = call.bytes;
  while (!rest.empty()) {
    const ssize_t count = write(call_.get(), rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const Status status = status_from_errno("keeping the call for its ranks", errno);
      return station_.say(Refused{status.code(), status.message()});
    }
    rest.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace corro::agent
