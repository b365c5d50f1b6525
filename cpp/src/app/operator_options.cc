#include "app/operator_options.h"

#include <CLI/CLI.hpp>

#include "app/command_line.h"

namespace corro::app {
namespace {

constexpr const char* kExamples = R"(
Examples:
  corro operator --kubeconfig ~/.kube/config      for a cluster, from outside
  corro operator --listen 0.0.0.0:8080            in a pod, as deploy/operator.yaml starts it

It makes pods of MPIJobs and CorroJobs and replaces lost ones; of several operators one leads.
Pages: /healthz, /readyz, and /metrics for Prometheus. It logs a line of JSON for what happens.
)";

}  // namespace

Result<OperatorRequest> parse_operator_line(const std::vector<std::string>& arguments) {
  CLI::App program("corro runs training jobs on Kubernetes.", "corro");
  program.require_subcommand(1);
  OperatorRequest request;
  describe_operator(program, request.command);
  CORRO_ASSIGN(auto help, parse_words(program, arguments));
  request.text = std::move(help).value_or("");
  return request;
}

void describe_operator(CLI::App& program, OperatorCommand& command) {
  CLI::App& app = *program.add_subcommand("operator", "Run the jobs of a Kubernetes cluster");
  app.footer(kExamples);
  const auto text = [&](const char* name, std::string& value, const char* type, const char* what) {
    return app.add_option(name, value, what)->type_name(type);
  };
  text("--kubeconfig", command.kubeconfig, "FILE",
       "How to reach the cluster; default: the pod's service account, else as kubectl");
  text("--context", command.context, "NAME", "Context of the file; default: its current one");
  text("--namespace", command.space, "NAME", "Work in this namespace alone");
  text("--lock-namespace", command.lease_space, "NAME",
       "Namespace of the leader's Lease; default: the operator's own");
  app.add_option("--workers,--threadiness", command.workers, "Jobs to look at at once")
      ->type_name("N")
      ->check(number_in(1, 256));
  app.add_option("--kube-api-qps", command.qps, "API calls a second, all together")
      ->type_name("N")
      ->check(number_in(0.1, 1e5));
  app.add_option("--kube-api-burst", command.burst, "API calls at once after a pause")
      ->type_name("N")
      ->check(number_in(1.0, 1e5));
  text("--listen", command.listen, "ADDR:PORT", "Address of the pages; '' for none")
      ->capture_default_str();
  text("--metrics-token", command.metrics_token, "FILE",
       "Serve /metrics beyond loopback to who shows the token in this file");
  text("--agent-image", command.agent_image, "IMAGE",
       "Image that brings corro into pods; default: corro:VERSION");
  text("--gang-scheduling", command.gang_scheduler, "NAME",
       "Gangs for MPIJobs: native, volcano, or a scheduler-plugins scheduler's name");
  text("--cluster-domain", command.cluster_domain, "NAME", "Domain of the cluster's DNS");
  text("--mpijob", command.mpijob, "WHICH",
       "MPIJobs to run: all, or managed (managedBy: training.corro.dev/operator)")
      ->check(CLI::IsMember({"all", "managed"}));
  app.add_option("--processing-units-per-node", command.units_per_node,
                 "Units that a node has for v1alpha1's gpus and processingUnits")
      ->type_name("N")
      ->check(number_in(1, 1024));
}

}  // namespace corro::app
