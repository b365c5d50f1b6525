// `corro probe`: each host measures itself, the links between them are those of `corro doctor -H`.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <memory>
#include <utility>

#include "agent/agent_process.h"
#include "agent/machine.h"
#include "app/planning/host_speed.h"
#include "app/planning/long_wait.h"
#include "app/planning/planning.h"
#include "app/planning/probed_cluster.h"
#include "app/program.h"
#include "launch/preflight.h"
#include "plan/cluster/cluster_file.h"

namespace corro::app {
namespace {

constexpr size_t kMostAnswered = size_t{1} << 16U;

plan::Cluster probe_here(const Variables& environment) {
  const agent::Machine machine = agent::read_machine(environment);
  uint32_t cores = static_cast<uint32_t>(std::max(1, machine.facts.cores));
  if (machine.facts.cpu_quota > 0) {
    cores = std::min(cores, std::max(1U, static_cast<uint32_t>(machine.facts.cpu_quota)));
  }
  return cluster_of({.name = machine.host.empty() ? "localhost" : machine.host,
                     .speed = measure_host(cores),
                     .memory = static_cast<double>(machine.facts.memory_bytes)});
}

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

/// `corro probe` of another host, while it runs.
using Answer = std::unique_ptr<FILE, int (*)(FILE*)>;

Answer ask(const launch::PreflightPlan& plan, const std::string& host) {
  const auto words = agent::words_for(agent::remote_shell(plan.rsh), host,
                                      "exec " + quoted(plan.corro) + " probe </dev/null");
  std::string line;
  for (const std::string& word : words) line += quoted(word) + " ";
  // NOLINTNEXTLINE(bugprone-command-processor): every word is quoted
  return {popen(line.c_str(), "re"), pclose};
}

Result<plan::Cluster> read_answer(Answer answer, const std::string& host) {
  std::string text;
  std::array<char, 4096> block{};
  while (answer != nullptr && text.size() < kMostAnswered) {
    const size_t bytes = fread(block.data(), 1, block.size(), answer.get());
    if (bytes == 0) break;
    text.append(block.data(), bytes);
  }
  answer.reset();
  auto cluster = plan::read_cluster(text, host, [](const std::string& path) {
    return Result<std::string>(Status(Code::kInvalidArgument, path + " is on another host"));
  });
  if (cluster.ok() && cluster->host_count() == 1) return cluster;
  return Status(Code::kUnavailable, fmt::format("{}: did not measure itself: {}", host,
                                                cluster.ok() ? "" : cluster.status().message()));
}

Result<std::vector<plan::Cluster>> probe_each(const launch::PreflightPlan& plan,
                                              const Variables& environment) {
  std::vector<Answer> answers;
  for (const launch::JobHost& host : plan.hosts) {
    answers.push_back(host.own ? Answer(nullptr, pclose) : ask(plan, host.name));
  }
  std::vector<plan::Cluster> clusters;
  for (size_t i = 0; i < plan.hosts.size(); ++i) {
    if (plan.hosts[i].own) {
      clusters.push_back(probe_here(environment));
      continue;
    }
    CORRO_ASSIGN(plan::Cluster cluster, read_answer(std::move(answers[i]), plan.hosts[i].name));
    clusters.push_back(std::move(cluster));
  }
  return clusters;
}

Result<plan::Cluster> probe_all(const launch::PreflightOptions& hosts,
                                const Variables& environment) {
  const launch::PlanInputs inputs{.environment = environment,
                                  .machine = agent::read_machine(environment),
                                  .files = launch::real_files(),
                                  .own_directory = own_directory(),
                                  .read_hostfile = launch::read_hostfile,
                                  .job_id = "",
                                  .time = ""};
  CORRO_ASSIGN(const auto plan, launch::plan_preflight(hosts, inputs, CORRO_VERSION));
  CORRO_ASSIGN(const auto health, launch::check_hosts(plan, [](const std::string& /*line*/) {}));
  for (const launch::HostHealth& host : health.hosts) {
    if (!host.answers()) {
      return Status(Code::kUnavailable, fmt::format("{}: {}", host.name, host.failure));
    }
  }
  CORRO_ASSIGN(const auto clusters, probe_each(plan, environment));
  return join_hosts(clusters, health);
}

}  // namespace

Result<Outcome> probe_hosts(const PlanCommand& command, const Variables& environment) {
  const bool is_alone = (command.hosts.hosts + command.hosts.hostfile).empty();
  plan::Cluster cluster;
  if (is_alone) {
    const LongWait wait("measuring");
    cluster = probe_here(environment);
  } else {
    CORRO_ASSIGN(cluster, probe_all(command.hosts, environment));
  }
  CORRO_ASSIGN(std::string text, plan::write_cluster(cluster));
  if (command.output.empty()) return Outcome{.printed = std::move(text)};
  return Outcome{.printed = "", .files = {{command.output, std::move(text)}}};
}

}  // namespace corro::app
