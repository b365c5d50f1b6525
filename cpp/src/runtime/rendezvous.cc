#include "runtime/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "io/interfaces.h"
#include "transport/rank_bootstrap.h"
#include "wire/agent_bootstrap.h"
#include "wire/agent_service.h"
#include "wire/directory_bootstrap.h"
#include "wire/secret.h"

namespace corro::runtime {
namespace {

/// What has to be known of this rank wherever it meets the others.
struct Place {
  const Environment& environment;
  const JoinOptions& options;
  int32_t rank, size;
  std::string job;
  Time deadline;
};

bool on_several_hosts(const Environment& environment) { return on_one_host(environment) == false; }

/// That of CORRO_SECRET_FILE, else the user's own.
Result<wire::Secret> find_secret(const Environment& environment) {
  if (!environment.secret_file.empty()) return wire::read_secret_file(environment.secret_file);
  if (!environment.user_secret_file.empty()) return wire::user_secret(environment.user_secret_file);
  return Status(Code::kFailedPrecondition,
                "ranks on several hosts need a secret: set HOME, or CORRO_SECRET_FILE to a file "
                "(chmod 600) with the same 64 hexadecimal digits for every rank");
}

/// A way for ranks of Open MPI, Slurm and others, if their environment names one.
bool may_meet(const Environment& environment) {
  if (!environment.meeting_hosts.empty()) return true;
  return on_one_host(environment) == true && !environment.job_id.empty() &&
         environment.launcher != "torchrun";
}

/// Ranks that mpirun has started in the pods of a job; its agents let them meet. One run's are told
/// from those of the next by the launcher's name for the job.
bool meet_in_pods(const Environment& environment) {
  return !environment.pod_job.empty() && !environment.pod_head.empty() &&
         !environment.launcher.empty() && !environment.job_id.empty() &&
         !environment.meeting_port && on_one_host(environment) != true;
}

Result<std::unique_ptr<wire::Bootstrap>> open_pod_bootstrap(const Place& place,
                                                            std::string& own_address) {
  const Environment& environment = place.environment;
  CORRO_ASSIGN(const auto head, io::SocketAddress::parse(environment.pod_head));
  own_address = io::own_address_towards(head);
  CORRO_ASSIGN(auto agent,
               wire::AgentBootstrap::connect({.name = wire::pod_service_name(environment.pod_job),
                                              .rank = place.rank,
                                              .deadline = place.deadline}));
  return std::unique_ptr<wire::Bootstrap>(std::move(agent));
}

std::vector<std::string> own_names() {
  std::vector<std::string> own = {io::host_name()};
  own.push_back(own[0].substr(0, own[0].find('.')));
  for (io::OwnAddress& one : io::own_addresses()) own.push_back(std::move(one.address));
  return own;
}

Result<std::unique_ptr<wire::Bootstrap>> open_rank_bootstrap(const Place& place,
                                                             std::string& own_address) {
  const Environment& environment = place.environment;
  const bool one_host = on_one_host(environment) == true;
  transport::RankBootstrapOptions options{
      .job = fmt::format("{} {}", environment.job_id, place.job),
      .rank = place.rank,
      .size = place.size,
      .serves = takes_agents_place(environment, place.rank, own_names()),
      .hosts = one_host ? std::vector<std::string>() : environment.meeting_hosts,
      .ports = environment.meeting_port ? std::vector{*environment.meeting_port}
                                        : transport::bootstrap_ports(environment.job_id),
      .interrupted = place.options.interrupted,
      .deadline = place.deadline};
  if (!one_host) {
    CORRO_ASSIGN(options.secret, find_secret(environment));
  }
  CORRO_ASSIGN(auto met, transport::RankBootstrap::join(options));
  own_address = met->own_address();
  return std::unique_ptr<wire::Bootstrap>(std::move(met));
}

Result<std::unique_ptr<wire::Bootstrap>> open_bootstrap(const Place& place, int recorder_fd,
                                                        std::string& own_address) {
  const Environment& environment = place.environment;
  if (!environment.agent.empty()) {
    const std::array<int, 1> descriptors = {recorder_fd};
    CORRO_ASSIGN(auto agent, wire::AgentBootstrap::connect({.name = environment.agent,
                                                            .rank = place.rank,
                                                            .descriptors = descriptors,
                                                            .deadline = place.deadline}));
    return std::unique_ptr<wire::Bootstrap>(std::move(agent));
  }
  if (place.options.make_store) return place.options.make_store();
  if (!environment.bootstrap_directory.empty()) {
    CORRO_ASSIGN(auto directory, wire::DirectoryBootstrap::open(environment.bootstrap_directory));
    return std::unique_ptr<wire::Bootstrap>(std::move(directory));
  }
  if (meet_in_pods(environment)) return open_pod_bootstrap(place, own_address);
  if (may_meet(environment)) return open_rank_bootstrap(place, own_address);
  return Status(Code::kFailedPrecondition,
                "several ranks, but no way to find each other: start them with `corro run`, or set "
                "CORRO_BOOTSTRAP=tcp:HOST:PORT to rank 0's host and a free port, or "
                "CORRO_BOOTSTRAP=dir:PATH to a directory that all ranks reach");
}

/// Under torchrun: the own address from which this host reaches the store, if that is elsewhere.
std::string address_towards_store(const Environment& environment) {
  const auto store = io::resolve(environment.master_address, 0);
  for (size_t i = 0; store.ok() && i < store->size(); ++i) {
    if ((*store)[i].is_loopback()) continue;
    if (std::string own = io::own_address_towards((*store)[i]); !own.empty()) return own;
  }
  const auto own = io::own_addresses();
  return own.empty() ? "" : own.front().address;
}

/// The first own address of the interfaces that a variable of others names.
Result<std::string> address_by(const InterfaceRule& rule) {
  std::set<std::string> names;
  for (const io::OwnAddress& own : io::own_addresses()) {
    if (rule.admits(own.interface)) return own.address;
    names.insert(own.interface);
  }
  return Status(Code::kInvalidArgument,
                fmt::format("host {} has no interface by {} with an address for others; it has {}",
                            io::host_name(), rule.text(),
                            names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
}

/// Where this rank listens for those of other hosts.
Result<std::string> listen_address(const Environment& environment, const std::string& own_address) {
  const std::string nowhere = "127.0.0.1";
  if (!environment.listen.empty()) return environment.listen;
  if (on_several_hosts(environment) && environment.interfaces)
    return address_by(*environment.interfaces);
  if (!own_address.empty()) return own_address;
  const bool by_store = on_several_hosts(environment) && !environment.master_address.empty();
  const std::string towards = by_store ? address_towards_store(environment) : "";
  return towards.empty() ? nowhere : towards;
}

}  // namespace

bool takes_agents_place(const Environment& environment, int32_t rank,
                        const std::vector<std::string>& own) {
  if (environment.meeting_port) return rank == 0;
  if (environment.local_rank.value_or(rank) != 0) return false;
  if (on_one_host(environment) == true) return true;
  if (environment.launcher == "Slurm") return environment.node_rank == 0;
  // All: a bridge of containers has the same address on every host.
  return std::ranges::all_of(environment.meeting_hosts, [&](const std::string& host) {
    return std::ranges::find(own, host) != own.end();
  });
}

Result<Rendezvous> meet(const Environment& environment, const JoinOptions& options, int32_t rank,
                        int32_t size, const obs::FlightRecorder& recorder, std::vector<int> shared,
                        Time deadline) {
  Rendezvous met;
  const Place place{.environment = environment,
                    .options = options,
                    .rank = rank,
                    .size = size,
                    .job = !options.job.empty() ? options.job : environment.job_id,
                    .deadline = deadline};
  std::string own_address;
  if (size > 1 || !environment.agent.empty()) {
    CORRO_ASSIGN(met.bootstrap, open_bootstrap(place, recorder.fd(), own_address));
    met.bootstrap->set_interrupted(options.interrupted);
  }
  met.mesh.peers.resize(static_cast<size_t>(size));
  if (size == 1) return met;
  std::optional<wire::Secret> secret = met.bootstrap->secret();
  const bool wanted = !environment.secret_file.empty() || on_several_hosts(environment);
  if (!secret && wanted) {
    CORRO_ASSIGN(secret, find_secret(environment));
  }
  CORRO_ASSIGN(const std::string listen, listen_address(environment, own_address));
  transport::MeshOptions mesh{
      .rank = rank,
      .size = size,
      .job = place.job,
      .bootstrap = met.bootstrap.get(),
      .secret = secret,
      .local =
          environment.local_tcp ? transport::LocalTransport::kTcp : transport::LocalTransport::kShm,
      .listen_address = listen,
      .one_host = on_one_host(environment) == true && environment.host_id.empty(),
      .host_id = environment.host_id,
      .settings = common_settings(environment),
      .deadline = deadline,
      .shared_descriptors = std::move(shared),
      .metrics = recorder.metrics()};
  CORRO_ASSIGN(met.mesh, transport::connect_mesh(mesh));
  met.bootstrap->joined();
  return met;
}

}  // namespace corro::runtime
