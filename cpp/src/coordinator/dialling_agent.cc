#include "coordinator/dialling_agent.h"

#include <fmt/format.h>
#include <sys/prctl.h>

#include <csignal>

#include "agent/guarded_agent.h"
#include "agent/machine.h"
#include "coordinator/job_secret.h"
#include "diagnosis/exit_status.h"
#include "io/interfaces.h"
#include "io/socket.h"
#include "launch/ranks.h"
#include "secure/tls_stream.h"

namespace corro::coordinator {
namespace {

Result<agent::Commander::Dialling> dialling_of(const DiallingAgentOptions& options,
                                               const Variables& environment) {
  std::vector<io::SocketAddress> addresses;
  for (const std::string& text : options.addresses) {
    CORRO_ASSIGN(const auto address, io::SocketAddress::parse(text));
    addresses.push_back(address);
  }
  const std::string host = options.host.empty() ? io::host_name() : options.host;
  if (!secure::decode_identity(secure::encode_identity(identity_of(host))).ok()) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("--host '{}': give up to 64 letters, digits, dots and hyphens", host));
  }
  CORRO_ASSIGN(const wire::Secret secret, job_secret(environment));
  CORRO_ASSIGN(secure::Tls tls, secure::Tls::client(identity_of(host), key_of(secret, host)));
  const int cores = launch::choose_ranks(agent::read_machine(environment).facts).ranks;
  return agent::Commander::Dialling{
      .addresses = options.addresses,
      .dial = [=](size_t number) { return dial_coordinator(addresses[number], tls); },
      .note =
          [host](const std::string& line) {
            fmt::print(stderr, "corro agent: {}: {}\n", host, line);
          },
      .host = host,
      .slots = options.slots > 0 ? options.slots : cores,
      .patience = options.patience};
}

}  // namespace

int run_dialling_agent(const DiallingAgentOptions& options, const Variables& environment) {
  auto dialling = dialling_of(options, environment);
  if (!dialling.ok()) {
    fmt::print(stderr, "corro agent: {}\n", dialling.status().message());
    return diagnosis::kUsageExit;
  }
  return follow_coordinators(std::move(*dialling), options.version);
}

int follow_coordinators(agent::Commander::Dialling how, const std::string& version) {
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  for (const int signal : {SIGCHLD, SIGTERM}) sigaddset(&blocked, signal);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_NAME, "rank-keeper");
  return agent::run_guarded_agent(agent::Commander(std::move(how)), before, version);
}

Result<agent::MessagePipe> dial_coordinator(const io::SocketAddress& address,
                                            const secure::Tls& tls) {
  CORRO_ASSIGN(io::Fd socket, io::connect_tcp(address));
  CORRO_ASSIGN(auto stream, tls.open(std::move(socket)));
  return agent::MessagePipe(std::move(stream));
}

}  // namespace corro::coordinator
