// corro operator: signals, credentials and pages around kube::Operator.
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stop_token>
#include <thread>

#include "app/operator/operator_command.h"
#include "app/operator_options.h"
#include "app/program.h"
#include "base/variables.h"
#include "diagnosis/exit_status.h"
#include "http/pages.h"
#include "io/files.h"
#include "io/random.h"
#include "kube/operator/operator.h"
#include "secure/credentials.h"
#include "secure/ssh_keys.h"

namespace corro::app {
namespace {

constexpr const char* kName = "corro operator";
constexpr size_t kMostTokenBytes = 4096;

/// Unique among all operators that ever were: the host's name and chance.
std::string own_name() {
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  uint64_t chance = 0;
  io::fill_random(std::as_writable_bytes(std::span(&chance, 1)));
  return fmt::format("{}_{:016x}", host, chance);
}

kube::OperatorOptions options_of(const OperatorCommand& command, const std::string& own_space) {
  kube::OperatorOptions options;
  options.space = command.space;
  options.workers = command.workers;
  options.jobs.agent_image =
      command.agent_image.empty() ? "corro:" CORRO_VERSION : command.agent_image;
  options.jobs.cluster_domain = command.cluster_domain;
  options.jobs.gang_scheduler = command.gang_scheduler;
  options.jobs.only_managed = command.mpijob == "managed";
  options.read.units_per_node = command.units_per_node;
  options.lease.key = {command.lease_space.empty() ? own_space : command.lease_space,
                       "corro-operator"};
  options.lease.me = own_name();
  return options;
}

Result<std::unique_ptr<http::Pages>> open_pages(const OperatorCommand& command,
                                                const kube::Operator& running) {
  std::string token;
  if (!command.metrics_token.empty()) {
    auto read = io::read_file(command.metrics_token, kMostTokenBytes);
    if (!read.ok()) return read.status().with_context(command.metrics_token);
    token = std::move(*read);
    while (!token.empty() && token.back() == '\n') token.pop_back();
    if (token.empty())
      return Status(Code::kInvalidArgument, command.metrics_token + ": the token is empty");
  }
  const auto ready = [&running](const http::Query&) -> http::Page {
    const std::string why = running.why_not_ready();
    return why.empty() ? http::Page{} : http::Page{503, "not ready: " + why + "\n"};
  };
  const auto metrics = [&running](const http::Query&) -> http::Page {
    return {200, running.metrics_text()};
  };
  return http::Pages::listen({command.listen, token},
                             {{"/healthz", {[](const http::Query&) { return http::Page{}; }}},
                              {"/readyz", {ready}},
                              {"/metrics", {metrics, true}}});
}

Result<std::map<std::string, std::string>> fill_secret(const kube::JobIdentity& job,
                                                       const kube::Action& action) {
  if (action.fill == kube::Fill::kSshKeys) return secure::make_ssh_keys();
  return secure::make_credentials(job.uid, action.members);
}

/// Runs the operator until SIGINT or SIGTERM, or until it ends by itself and says so by SIGUSR1.
/// Every thread has blocked them.
Status run_until_signal(kube::Operator& running, const sigset_t& signals) {
  std::stop_source stop;
  Status ended;
  const pthread_t self = pthread_self();
  std::thread thread([&] {
    ended = running.run(stop.get_token());
    pthread_kill(self, SIGUSR1);
  });
  int signal = 0;
  sigwait(&signals, &signal);
  stop.request_stop();
  thread.join();
  return ended;
}

Status run_operator(const OperatorCommand& command, const Variables& environment) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  CORRO_ASSIGN(const kube::KubeAccess access,
               kube::find_access(environment, command.kubeconfig, command.context));
  kube::ClientOptions calls;
  calls.qps = command.qps;
  calls.burst = command.burst;
  CORRO_ASSIGN(const auto client, kube::Client::connect(access, calls));
  kube::OperatorLog log;
  CORRO_ASSIGN(
      const auto running,
      kube::Operator::create(*client, options_of(command, access.space), fill_secret, log));
  std::unique_ptr<http::Pages> pages;
  if (!command.listen.empty()) {
    CORRO_ASSIGN(pages, open_pages(command, *running));
  }
  log.info("starts", {{"version", CORRO_VERSION},
                      {"cluster", access.cluster.url},
                      {"pages", pages == nullptr ? "" : pages->address()}});
  return run_until_signal(*running, signals);
}

}  // namespace

int operator_program(const std::vector<std::string>& arguments) {
  return answer(parse_operator_line(arguments), [](const OperatorCommand& command) {
    const Status status = run_operator(command, read_variables()).with_context(kName);
    if (status.ok()) return 0;
    complain(status.message());
    return status.code() == Code::kInvalidArgument ? diagnosis::kUsageExit : 1;
  });
}

}  // namespace corro::app
