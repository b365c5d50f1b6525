#include "kube/client/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "kube/client/exec_plugin.h"

namespace corro::kube {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasSubstr;

class CredentialFiles : public testing::Test {
 protected:
  CredentialFiles() {
    std::string name = testing::TempDir() + "corro_kube_XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~CredentialFiles() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text, bool is_program = false) {
    const std::string path = folder_ + "/" + name;
    const std::string fresh = path + ".new";
    std::ofstream(fresh) << text;
    if (is_program) ::chmod(fresh.c_str(), 0700);
    std::filesystem::rename(fresh, path);
    return path;
  }
  /// A plug-in that counts its runs in a file and prints a token with the count.
  KubeUser counting_plugin(const std::string& expires) {
    const std::string script =
        "#!/bin/sh\nprintf x >>" + folder_ + "/runs\nruns=$(wc -c <" + folder_ +
        "/runs)\n"
        R"(printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",)"
        R"("status":{"token":"%s-%s-%s","expirationTimestamp":")" +
        expires + R"("}}' "$runs" "$1" "$WHO")";
    KubeUser user;
    user.exec = ExecPlugin{"client.authentication.k8s.io/v1",
                           write("plugin", script, true),
                           {"argument"},
                           {{"WHO", "me"}},
                           "",
                           false};
    return user;
  }

  std::string folder_;
  UnixTime now_ = *parse_rfc3339("2026-11-24T20:00:00Z");
  std::function<UnixTime()> clock_ = [this] { return now_; };
  std::stop_source stopping_;
  std::stop_token stop_ = stopping_.get_token();
};

TEST_F(CredentialFiles, TokenFilesAreReadAgainAfterAMinuteAndAfterARefusal) {
  KubeUser user;
  user.token_file = write("token", "one\n");
  UserCredentials credentials(user, {}, clock_);
  EXPECT_EQ(credentials.current(stop_)->token, "one");
  write("token", "two");
  EXPECT_EQ(credentials.current(stop_)->token, "one");
  now_ += minutes(1);
  EXPECT_EQ(credentials.current(stop_)->token, "two");
  write("token", "three");
  credentials.refused(*credentials.current(stop_));
  EXPECT_EQ(credentials.current(stop_)->token, "three");
  // A file that is away for a moment does not end the client.
  std::filesystem::remove(user.token_file);
  now_ += minutes(2);
  EXPECT_EQ(credentials.current(stop_)->token, "three");
  credentials.refused(*credentials.current(stop_));
  const auto none = credentials.current(stop_);
  EXPECT_EQ(none.status().code(), Code::kUnauthenticated);
  EXPECT_THAT(none.status().message(), HasSubstr(user.token_file));
}

TEST_F(CredentialFiles, PluginsRunAgainBeforeTheirCredentialExpires) {
  UserCredentials credentials(counting_plugin("2026-11-24T20:10:00Z"), {}, clock_);
  EXPECT_EQ(credentials.current(stop_)->token, "1-argument-me");
  now_ += minutes(9);
  EXPECT_EQ(credentials.current(stop_)->token, "1-argument-me");
  now_ += seconds(51);
  EXPECT_EQ(credentials.current(stop_)->token, "2-argument-me");
  now_ -= minutes(5);
  EXPECT_EQ(credentials.current(stop_)->token, "2-argument-me");
  credentials.refused({.token = "another"});
  EXPECT_EQ(credentials.current(stop_)->token, "2-argument-me");
  credentials.refused(*credentials.current(stop_));
  EXPECT_EQ(credentials.current(stop_)->token, "3-argument-me");
}

TEST_F(CredentialFiles, PluginsThatFailSayWhy) {
  ExecPlugin plugin;
  plugin.command = write("fails", "#!/bin/sh\necho first >&2\necho last reason >&2\nexit 3", true);
  const auto failed = run_plugin(plugin, "{}", seconds(60), stop_);
  EXPECT_EQ(failed.status().code(), Code::kUnauthenticated);
  EXPECT_EQ(failed.status().message(),
            "credential plug-in " + plugin.command + ": exit status 3: last reason");
  plugin.command = folder_ + "/missing";
  plugin.install_hint = "apt-get install it";
  const auto missing = run_plugin(plugin, "{}", seconds(60), stop_);
  EXPECT_EQ(missing.status().code(), Code::kUnauthenticated);
  EXPECT_THAT(missing.status().message(), HasSubstr("apt-get install it"));
}

TEST_F(CredentialFiles, PluginsAreBoundedInTimeAndOutput) {
  ExecPlugin plugin;
  plugin.command = write("hangs", "#!/bin/sh\nsleep 1000 & sleep 1000", true);
  EXPECT_EQ(run_plugin(plugin, "{}", std::chrono::milliseconds(50), stop_).status().code(),
            Code::kDeadlineExceeded);
  plugin.command =
      write("prints", "#!/bin/sh\nwhile :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxx; done", true);
  EXPECT_EQ(run_plugin(plugin, "{}", seconds(60), stop_).status().code(), Code::kResourceExhausted);
  plugin.command = folder_ + "/hangs";
  std::thread stopping([this] { stopping_.request_stop(); });
  EXPECT_EQ(run_plugin(plugin, "{}", seconds(60), stop_).status().code(), Code::kCancelled);
  stopping.join();
}

TEST_F(CredentialFiles, PluginsMayLeaveAChildThatHoldsTheirOutput) {
  ExecPlugin plugin;
  plugin.command = write("leaves", "#!/bin/sh\nsleep 1000 &\necho done", true);
  const auto output = run_plugin(plugin, "{}", seconds(60), stop_);
  ASSERT_TRUE(output.ok()) << output.status().message();
  EXPECT_EQ(*output, "done\n");
}

TEST_F(CredentialFiles, PodsFindTheirsWhereTheKubeletPutsThem) {
  write("ca.crt", "CA");
  write("token", "t");
  write("namespace", "training\n");
  const auto access = in_cluster_access("fd00::1", "443", folder_);
  ASSERT_TRUE(access.ok()) << access.status().message();
  EXPECT_EQ(access->cluster.host, "fd00::1");
  EXPECT_EQ(access->cluster.ca_pem, "CA");
  EXPECT_EQ(access->space, "training");
  EXPECT_EQ(access->user.token_file, folder_ + "/token");
  EXPECT_EQ(in_cluster_access("", "", folder_).status().code(), Code::kNotFound);
  EXPECT_EQ(in_cluster_access("10.0.0.1", "x", folder_).status().code(), Code::kInvalidArgument);
}

TEST_F(CredentialFiles, KubeconfigsAreReadWithTheirAuthority) {
  write("ca.crt", "CA");
  const std::string path = write(
      "config",
      "current-context: h\ncontexts: [{name: h, context: {cluster: c, user: u}}]\n"
      "clusters: [{name: c, cluster: {server: 'https://api', certificate-authority: ca.crt}}]\n"
      "users: [{name: u}]\n");
  const auto access = load_kubeconfig(path);
  ASSERT_TRUE(access.ok()) << access.status().message();
  EXPECT_EQ(access->cluster.ca_pem, "CA");
  EXPECT_EQ(load_kubeconfig(folder_ + "/none").status().code(), Code::kNotFound);
}

TEST_F(CredentialFiles, AccessIsLookedForAsByKubectlAndInAPodFirst) {
  const auto config = [](const std::string& host) {
    return "current-context: h\ncontexts: [{name: h, context: {cluster: c, user: u}}]\n"
           "clusters: [{name: c, cluster: {server: 'https://" +
           host + "'}}]\nusers: [{name: u}]\n";
  };
  const auto host = [](const Result<KubeAccess>& access) {
    return access.ok() ? access->cluster.host : access.status().message();
  };
  std::filesystem::create_directory(folder_ + "/.kube");
  write(".kube/config", config("home"));
  const std::string named = write("named", config("named"));
  Variables environment{{"HOME", folder_}};
  EXPECT_EQ(host(find_access(environment)), "home");
  environment["KUBECONFIG"] = named;
  EXPECT_EQ(host(find_access(environment)), "named");
  environment["KUBERNETES_SERVICE_HOST"] = "10.0.0.1";
  environment["KUBERNETES_SERVICE_PORT"] = "not a port";
  EXPECT_THAT(host(find_access(environment)), HasSubstr("KUBERNETES_SERVICE_HOST"));
  EXPECT_EQ(host(find_access(environment, named)), "named");
  EXPECT_THAT(host(find_access(environment, named, "other")), HasSubstr("contexts"));
}

}  // namespace
}  // namespace corro::kube
