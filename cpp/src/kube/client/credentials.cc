#include "kube/client/credentials.h"

#include <fmt/format.h>

#include <utility>

#include "io/files.h"
#include "kube/client/exec_credential.h"
#include "kube/client/exec_plugin.h"

namespace corro::kube {
namespace {

constexpr size_t kMostSecretFileBytes = size_t{1} << 20U;
constexpr auto kFilesAreFresh = std::chrono::minutes(1);
constexpr auto kExpiresSoon = std::chrono::seconds(10);
constexpr Duration kPluginPatience = std::chrono::seconds(60);

Result<std::string> read_named_file(const std::string& path, size_t most) {
  Result<std::string> text = io::read_file(path, most);
  if (!text.ok()) return text.status().with_context(path);
  return text;
}

/// Without the line's end that a token's file has.
std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

}  // namespace

UserCredentials::UserCredentials(KubeUser user, KubeCluster cluster,
                                 std::function<UnixTime()> clock)
    : user_(std::move(user)), cluster_(std::move(cluster)), clock_(std::move(clock)) {}

bool UserCredentials::is_fresh(const State& state) const {
  if (!state.last) return false;
  const UnixTime now = clock_();
  if (state.last->expires && now >= *state.last->expires - kExpiresSoon) return false;
  const bool has_files =
      !user_.token_file.empty() || !user_.certificate_file.empty() || !user_.key_file.empty();
  // A wall clock that jumped back makes files old too.
  return !has_files || (now < state.read_at + kFilesAreFresh && now >= state.read_at);
}

Result<Credential> UserCredentials::read_texts_and_files() const {
  Credential credential{user_.token, user_.certificate_pem, user_.key_pem, {}};
  if (credential.token.empty() && !user_.token_file.empty()) {
    CORRO_ASSIGN(const std::string text, read_named_file(user_.token_file, kMostSecretFileBytes));
    credential.token = trimmed(text);
    if (credential.token.empty() || credential.token.find_first_of("\r\n") != std::string::npos) {
      return Status(Code::kUnauthenticated, user_.token_file + ": must hold one token");
    }
  }
  if (!user_.certificate_file.empty()) {
    CORRO_ASSIGN(credential.certificate_pem,
                 read_named_file(user_.certificate_file, kMostSecretFileBytes));
  }
  if (!user_.key_file.empty()) {
    CORRO_ASSIGN(credential.key_pem, read_named_file(user_.key_file, kMostSecretFileBytes));
  }
  return credential;
}

Result<Credential> UserCredentials::ask(const std::stop_token& stop) const {
  CORRO_ASSIGN(Credential credential, read_texts_and_files());
  if (!user_.exec || !credential.token.empty()) return credential;
  CORRO_ASSIGN(const std::string output,
               run_plugin(*user_.exec, exec_info(*user_.exec, cluster_), kPluginPatience, stop));
  return read_exec_credential(output, "credential plug-in " + user_.exec->command, *user_.exec);
}

Result<Credential> UserCredentials::current(const std::stop_token& stop) {
  constexpr Duration kLook = std::chrono::milliseconds(100);  // For a stop, while another asks.
  {
    auto state = state_.lock();
    while (state->is_asking) {
      if (stop.stop_requested()) return Status(Code::kCancelled, "credentials: stopped");
      state.wait_for(kLook);
    }
    if (is_fresh(*state)) return *state->last;
    state->is_asking = true;
  }
  Result<Credential> asked = ask(stop);
  auto state = state_.lock();
  state->is_asking = false;
  state_.notify_all();
  if (asked.ok()) {
    state->last = *asked;
    state->read_at = clock_();
    return asked;
  }
  const bool is_stopped = asked.status().code() == Code::kCancelled;
  // A file that is being replaced: what it held is good until the server says otherwise.
  const bool is_valid = state->last && !state->last->expires;
  if (!is_stopped && is_valid) return *state->last;
  return is_stopped ? asked.status() : Status(Code::kUnauthenticated, asked.status().message());
}

void UserCredentials::refused(const Credential& shown) {
  auto state = state_.lock();
  if (state->last && *state->last == shown) state->last.reset();
}

Result<KubeAccess> in_cluster_access(const std::string& host, const std::string& port,
                                     const std::string& folder) {
  if (host.empty() || port.empty()) {
    return Status(
        Code::kNotFound,
        "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is no pod");
  }
  KubeAccess access;
  const bool is_v6 = host.find(':') != std::string::npos;
  const std::string url =
      is_v6 ? fmt::format("https://[{}]:{}", host, port) : fmt::format("https://{}:{}", host, port);
  if (const Status status = read_server_url(url, access.cluster); !status.ok()) {
    return status.with_context("KUBERNETES_SERVICE_HOST");
  }
  CORRO_ASSIGN(access.cluster.ca_pem, read_named_file(folder + "/ca.crt", kMostSecretFileBytes));
  access.user.token_file = folder + "/token";
  const auto space = io::read_file(folder + "/namespace", 1024);
  if (space.ok() && !trimmed(*space).empty()) access.space = trimmed(*space);
  return access;
}

Result<KubeAccess> load_kubeconfig(const std::string& path, const std::string& context) {
  CORRO_ASSIGN(const std::string text, read_named_file(path, kMostKubeconfigBytes));
  CORRO_ASSIGN(KubeAccess access, read_kubeconfig(text, path, context));
  if (!access.cluster.ca_file.empty()) {
    CORRO_ASSIGN(access.cluster.ca_pem,
                 read_named_file(access.cluster.ca_file, kMostSecretFileBytes));
  }
  return access;
}

Result<KubeAccess> find_access(const Variables& environment, const std::string& kubeconfig,
                               const std::string& context) {
  if (!kubeconfig.empty()) return load_kubeconfig(kubeconfig, context);
  const std::string host = value_of(environment, "KUBERNETES_SERVICE_HOST");
  if (!host.empty()) {
    return in_cluster_access(host, value_of(environment, "KUBERNETES_SERVICE_PORT"));
  }
  const std::string named = value_of(environment, "KUBECONFIG");
  const std::string home = value_of(environment, "HOME") + "/.kube/config";
  return load_kubeconfig(named.empty() ? home : named, context);
}

}  // namespace corro::kube
