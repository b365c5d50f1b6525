// corro in images with nothing else: the operator, and for the pods of jobs head, agent, remote
// shell and installer. It is linked statically; docs/design/0023-pods.md.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "app/commands.h"
#include "app/operator/operator_command.h"
#include "diagnosis/exit_status.h"
#include "pod/elastic_job.h"
#include "pod/folder.h"
#include "pod/head.h"
#include "pod/install.h"
#include "pod/pod_agent.h"
#include "pod/ranks.h"
#include "pod/remote_shell.h"

namespace corro::app {
namespace {

using Words = std::vector<std::string>;

constexpr const char* kUsage =
    "usage: corro operator [OPTIONS]             runs the jobs of a cluster; see --help\n"
    "       corro head --listen ADDRESS:PORT     the head of a job\n"
    "       corro receive                        takes the folder of a job, in its head\n"
    "       corro agent --pod [-- COMMAND...]    the agent of a pod\n"
    "       corro agent                          the agent of a remote shell\n"
    "       corro rsh [OPTIONS] HOST COMMAND...  a command on another host of the job; also as "
    "ssh\n"
    "       corro install FOLDER                 copies this program there\n"
    "       corro status [JOB]                   in a head: what its job does\n"
    "       corro stacks [JOB]                   in a head: where ranks are in their programs\n"
    "       corro dash [JOB]                     in a head: where its job is shown to browsers\n"
    "       corro version\n";

int refuse(const std::string& line) {
  complain(line);
  return diagnosis::kUsageExit;
}

int head(const Words& words) {
  const bool is_right = words.size() == 2 && words[0] == "--listen";
  if (!is_right) return refuse("corro head: give --listen ADDRESS:PORT");
  const auto settings = pod::read_settings(read_variables());
  if (!settings.ok()) return refuse("corro head: " + settings.status().message());
  pod::HeadOptions options{
      .settings = *settings, .listen = words[1], .program = own_path(), .version = CORRO_VERSION};
  if (!settings->sync.empty()) {
    int signal = 0;
    const auto is_there = pod::wait_for_folder(*settings, signal);
    if (!is_there.ok()) return diagnosis::kSignalExit + signal;
    options.has_folder = *is_there;
  }
  return settings->is_elastic() ? pod::run_elastic_head(options) : pod::run_head(options);
}

int agent(const Words& words) {
  if (words.empty()) return agent_command();
  const bool is_right = words[0] == "--pod" && (words.size() == 1 || words[1] == "--");
  if (!is_right) return refuse("corro agent: give --pod, or --pod -- COMMAND...");
  const auto settings = pod::read_settings(read_variables());
  if (!settings.ok()) return refuse("corro agent: " + settings.status().message());
  pod::PodAgentOptions options{
      .settings = *settings, .command = {}, .program = own_path(), .version = CORRO_VERSION};
  if (words.size() > 2) options.command.assign(words.begin() + 2, words.end());
  return settings->is_elastic() ? pod::run_elastic_agent(options) : pod::run_pod_agent(options);
}

int receive(const Words& words) {
  if (!words.empty()) return refuse("corro receive: takes no arguments");
  const auto settings = pod::read_settings(read_variables());
  if (!settings.ok()) return refuse("corro receive: " + settings.status().message());
  return pod::receive_folder(*settings);
}

int remote_shell(const Words& words) {
  const auto fail = [](const Status& status) {
    complain("corro rsh: " + status.message());
    return pod::kShellFailure;
  };
  const auto request = pod::parse_ssh(words);
  if (!request.ok()) return fail(request.status());
  const auto settings = pod::read_settings(read_variables());
  if (!settings.ok()) return fail(settings.status());
  return pod::run_remote_shell(*settings, *request);
}

int install(const Words& words) {
  if (words.size() != 1) return refuse("corro install: give one folder");
  const Status status = pod::install_program(words[0]);
  return status.ok() ? 0 : refuse("corro install: " + status.message());
}

int look(const std::string& command, const Words& words) {
  if (words.size() > 1) return refuse(fmt::format("corro {}: give one job, or none", command));
  const std::string job = words.empty() ? "" : words[0];
  if (command == "dash") return dash_command({.path = job, .address = "127.0.0.1:0"});
  if (command == "stacks") return stacks_command(job);
  return status_command(job, /*is_json=*/false, read_variables());
}

int run_pod_program(const std::string& name, Words words) {
  if (name.substr(name.rfind('/') + 1) == "ssh") return remote_shell(words);
  const std::string command = words.empty() ? "" : words[0];
  if (command == "operator") return operator_program(words);
  if (!words.empty()) words.erase(words.begin());
  if (command == "head") return head(words);
  if (command == "agent") return agent(words);
  if (command == "receive") return receive(words);
  if (command == "rsh") return remote_shell(words);
  if (command == "install") return install(words);
  if (command == "ranks") return pod::run_ranks(words, own_path(), CORRO_VERSION);
  if (command == "dash" || command == "stacks" || command == "status") return look(command, words);
  if (command == "version" || command == "--version") {
    fmt::print("corro {}\n", CORRO_VERSION);
    return 0;
  }
  fmt::print(stderr, "{}", kUsage);
  return command == "help" ? 0 : diagnosis::kUsageExit;
}

}  // namespace
}  // namespace corro::app

int main(int argc, char** argv) {
  // The name decides as well: the remote shell is started as `ssh`, too.
  const std::string name = argc > 0 ? argv[0] : "corro";
  return corro::app::run_guarded(argc, argv, [&name](const std::vector<std::string>& words) {
    return corro::app::run_pod_program(name, words);
  });
}
