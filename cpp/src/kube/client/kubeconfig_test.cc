#include "kube/client/kubeconfig.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kube/client/exec_credential.h"
#include "kube/client/json.h"

namespace corro::kube {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string config_of(const std::string& cluster, const std::string& user) {
  return "apiVersion: v1\nkind: Config\npreferences: {}\ncurrent-context: here\n"
         "contexts:\n- name: other\n- name: here\n  context: {cluster: c, user: u, namespace: n}\n"
         "clusters:\n- name: c\n  cluster: {" +
         cluster + "}\nusers:\n- name: u\n  user: {" + user + "}\n";
}

TEST(Kubeconfig, ReadsCertificatesFromTextAndFiles) {
  const auto access = read_kubeconfig(
      config_of("server: 'https://[::1]:6443/base/', certificate-authority-data: Q0E=, "
                "tls-server-name: api.example",
                "client-certificate: pki/me.crt, client-key: /etc/me.key, unknown: [1]"),
      "/home/me/.kube/config");
  ASSERT_TRUE(access.ok()) << access.status().message();
  EXPECT_EQ(access->cluster.host, "::1");
  EXPECT_EQ(access->cluster.port, 6443);
  EXPECT_EQ(access->cluster.base_path, "/base");
  EXPECT_EQ(access->cluster.server_name, "api.example");
  EXPECT_EQ(access->cluster.ca_pem, "CA");
  EXPECT_EQ(access->user.certificate_file, "/home/me/.kube/pki/me.crt");
  EXPECT_EQ(access->user.key_file, "/etc/me.key");
  EXPECT_EQ(access->space, "n");
}

TEST(Kubeconfig, ReadsTokensAndPlugins) {
  const std::string server = "server: https://api, certificate-authority: ca.crt";
  const auto token = read_kubeconfig(config_of(server, "token: abc"), "config");
  ASSERT_TRUE(token.ok()) << token.status().message();
  EXPECT_EQ(token->user.token, "abc");
  EXPECT_EQ(token->cluster.port, 443);
  EXPECT_EQ(token->cluster.server_name, "api");
  EXPECT_EQ(token->cluster.ca_file, "ca.crt");
  const auto plugin = read_kubeconfig(
      config_of(server,
                "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./get-token, "
                "args: [a, b], env: [{name: X, value: y}], installHint: do this, "
                "provideClusterInfo: true, interactiveMode: IfAvailable}"),
      "/k/config");
  ASSERT_TRUE(plugin.ok()) << plugin.status().message();
  EXPECT_EQ(plugin->user.exec->command, "/k/./get-token");
  EXPECT_THAT(plugin->user.exec->arguments, ElementsAre("a", "b"));
  EXPECT_EQ(plugin->user.exec->variables.at("X"), "y");
  EXPECT_TRUE(plugin->user.exec->wants_cluster);
}

TEST(Kubeconfig, RefusesOnPurpose) {
  const std::string good = "server: https://api";
  const std::vector<std::pair<std::string, std::string>> table = {
      {config_of(good + ", insecure-skip-tls-verify: true", ""),
       "config: clusters[0].cluster.insecure-skip-tls-verify: corro always verifies"},
      {config_of("server: http://api", ""), "config: clusters[0].cluster.server: corro speaks TLS"},
      {config_of(good + ", proxy-url: http://p", ""), "proxy-url"},
      {config_of(good, "username: a, password: b"), "users[0].user.username: corro knows"},
      {config_of(good, "auth-provider: {name: gcp}"), "auth-provider"},
      {config_of(good, "as: root"), "users[0].user.as"},
      {config_of(good,
                 "exec: {apiVersion: client.authentication.k8s.io/v1, command: x, "
                 "interactiveMode: Always}"),
       "no terminal"},
  };
  for (const auto& [text, message] : table) {
    const auto access = read_kubeconfig(text, "config");
    EXPECT_EQ(access.status().code(), Code::kFailedPrecondition) << text;
    EXPECT_THAT(access.status().message(), HasSubstr(message));
  }
}

TEST(Kubeconfig, NamesThePlaceOfWhatIsWrong) {
  const std::string good = "server: https://api";
  const std::string exec = "exec: {apiVersion: client.authentication.k8s.io/v1";
  const std::vector<std::pair<std::string, std::string>> table = {
      {"", "must be an object"},
      {"{", "config:"},
      {"a: 1", "current-context: is missing"},
      {"current-context: x", "contexts: has nothing called \"x\""},
      {"current-context: x\ncontexts: 3", "contexts: must be a list"},
      {config_of("", ""), "clusters[0].cluster.server: must be an address"},
      {config_of("server: 'https://:1'", ""), "has no host"},
      {config_of("server: 'https://a:0'", ""), "has a bad port"},
      {config_of("server: 'https://a:65536'", ""), "has a bad port"},
      {config_of("server: 'https://[::1'", ""), "has no end"},
      {config_of("server: 'https://a b'", ""), "must be an address"},
      {config_of(good + ", certificate-authority-data: '*'", ""), "is no base64"},
      {config_of(good, "token: 12"), "users[0].user.token: must be a text"},
      {config_of(good, R"(token: "a\nb")"), "token: must be one line"},
      {config_of(good, "client-key: k"), "client-certificate: is missing"},
      {config_of(good, "client-certificate-data: Q0E="), "client-key: is missing"},
      {config_of(good, exec + "}"), "exec.command: must name a program"},
      {config_of(good, "exec: {apiVersion: v9, command: x}"), "exec.apiVersion: must be"},
      {config_of(good, exec + ", command: x, args: [1]}"), "exec.args[0]: must be a text"},
      {config_of(good, exec + ", command: x, env: [{name: 'a=b'}]}"), "exec.env[0]: must have"},
  };
  for (const auto& [text, message] : table) {
    const auto access = read_kubeconfig(text, "config");
    EXPECT_EQ(access.status().code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(access.status().message(), HasSubstr(message)) << text;
    EXPECT_TRUE(access.status().message().starts_with("config:")) << access.status().message();
  }
  const std::string config = config_of(good, "");
  EXPECT_FALSE(read_kubeconfig(config, "config", "nowhere").ok());
  EXPECT_TRUE(read_kubeconfig(config, "config", "here").ok());
}

TEST(Base64, IsReadAndWritten) {
  const std::string all = std::string(1, '\0') + "\x01\xFF any";
  for (size_t bytes = 0; bytes <= all.size(); ++bytes) {
    EXPECT_EQ(decode_base64(encode_base64(all.substr(0, bytes))), all.substr(0, bytes));
  }
  EXPECT_EQ(decode_base64("Q0\nE="), "CA");
  for (const char* bad : {"Q", "Q0E", "Q0E=Q0E=", "====", "Q===", "Q0F=x", "Q0E-", "Q0F="}) {
    EXPECT_FALSE(decode_base64(bad)) << bad;
  }
}

ExecPlugin plugin_v1() {
  ExecPlugin plugin;
  plugin.api_version = "client.authentication.k8s.io/v1";
  plugin.command = "x";
  return plugin;
}

TEST(ExecCredential, IsRead) {
  const auto read = read_exec_credential(
      R"({"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":)"
      R"({"token":"t","expirationTimestamp":"2026-11-24T21:00:00Z"}})",
      "x", plugin_v1());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->token, "t");
  EXPECT_EQ(read->expires, parse_rfc3339("2026-11-24T21:00:00Z"));
}

TEST(ExecCredential, RefusesOthersWithoutShowingThem) {
  const auto with = [](const std::string& status) {
    return R"({"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":)" +
           status + "}";
  };
  const std::vector<std::string> table = {
      "secret",
      R"({"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1"})",
      R"({"kind":"Secret","apiVersion":"client.authentication.k8s.io/v1"})",
      with("{}"),
      with(R"({"token":"secret\n"})"),
      with(R"({"clientKeyData":"secret"})"),
      with(R"({"token":"secret","expirationTimestamp":"tomorrow"})"),
  };
  for (const std::string& text : table) {
    const auto read = read_exec_credential(text, "x", plugin_v1());
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_TRUE(read.status().message().starts_with("x: ")) << read.status().message();
    EXPECT_THAT(read.status().message(), testing::Not(HasSubstr("secret")));
  }
}

TEST(ExecCredential, TellsTheClusterOnlyIfAsked) {
  KubeCluster cluster;
  ASSERT_TRUE(read_server_url("https://api:6443", cluster).ok());
  cluster.ca_pem = "CA";
  ExecPlugin plugin = plugin_v1();
  EXPECT_EQ(exec_info(plugin, cluster),
            R"({"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",)"
            R"("spec":{"interactive":false}})");
  plugin.wants_cluster = true;
  const Json info = Json::parse(exec_info(plugin, cluster));
  EXPECT_EQ(text_at(info, {"spec", "cluster", "server"}), "https://api:6443");
  EXPECT_EQ(text_at(info, {"spec", "cluster", "certificate-authority-data"}), "Q0E=");
}

}  // namespace
}  // namespace corro::kube
