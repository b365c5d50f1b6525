#include "coordinator/open_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace corro::coordinator {
namespace {

using testing::HasSubstr;

class OpenStoreTest : public testing::Test {
 protected:
  OpenStoreTest() { EXPECT_NE(::mkdtemp(folder_.data()), nullptr); }
  ~OpenStoreTest() override { std::filesystem::remove_all(folder_); }
  static Status refusal(const std::string& text, const Variables& variables = {}) {
    return open_store(text, variables).status();
  }

  std::string folder_ = testing::TempDir() + "corro_store_XXXXXX";
};

TEST_F(OpenStoreTest, APathIsAFileStore) {
  for (const std::string& text : {folder_, "file:" + folder_}) {
    const auto store = open_store(text, {});
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    EXPECT_EQ(*(*store)->read(), "");
  }
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/record.lock"));
  EXPECT_EQ(refusal(folder_ + "/job7").code(), Code::kNotFound) << "a mount may be missing";
  EXPECT_EQ(refusal("file:" + folder_ + "/none/job7").code(), Code::kNotFound);
}

TEST_F(OpenStoreTest, AnEtcdIsNamedByItsEndpointsAndAPrefix) {
  for (const std::string text :
       {"etcd://127.0.0.1:2379/corro/job7", "etcd://localhost/job7", "etcd://[::1]:2379/job7",
        "etcd://10.0.0.1:2379,10.0.0.2:2379,host3:2379/job7", "etcd://[fd00::1]/job7/"}) {
    const Status opened = refusal(text);
    EXPECT_TRUE(opened.ok()) << opened.to_string();
  }
  for (const std::string text : {"etcd://", "etcd:///job7", "etcd://host:2379", "etcd://host:2379/",
                                 "etcd://host:x/job7", "etcd://host:2379,,other:2379/job7",
                                 "etcd://[::1/job7", "redis://host/job7", "file:", ""}) {
    EXPECT_EQ(refusal(text).code(), Code::kInvalidArgument) << text;
  }
}

TEST_F(OpenStoreTest, CertificatesOfEtcdctlAreReadAtOnce) {
  const std::string text = "etcd://127.0.0.1:2379/job7";
  const Status half = refusal(text, {{"ETCDCTL_CERT", folder_ + "/me.crt"}});
  EXPECT_EQ(half.code(), Code::kInvalidArgument);
  EXPECT_THAT(half.message(), HasSubstr("ETCDCTL_CERT and ETCDCTL_KEY belong together"));
  const Status missing = refusal(text, {{"ETCDCTL_CACERT", folder_ + "/ca.crt"}});
  EXPECT_EQ(missing.code(), Code::kUnauthenticated);
  EXPECT_EQ(missing.message(),
            text + ": ETCDCTL_CACERT: " + folder_ + "/ca.crt: No such file or directory");
  const Status no_key =
      refusal(text, {{"ETCDCTL_CERT", "/none.crt"}, {"ETCDCTL_KEY", "/none.key"}});
  EXPECT_EQ(no_key.code(), Code::kUnauthenticated);
  EXPECT_THAT(no_key.message(), HasSubstr("/none.crt"));
  std::ofstream(folder_ + "/ca.crt") << "nonsense";
  EXPECT_EQ(refusal(text, {{"ETCDCTL_CACERT", folder_ + "/ca.crt"}}).code(),
            Code::kInvalidArgument);
}

TEST_F(OpenStoreTest, AKubernetesClusterIsFoundAsByKubectl) {
  // There is no token: the failure says what was asked for.
  std::ofstream(folder_ + "/config")
      << "current-context: h\n"
         "contexts: [{name: h, context: {cluster: c, user: u, namespace: training}}]\n"
         "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n"
         "users: [{name: u, user: {tokenFile: none}}]\n";
  const Variables variables{{"KUBECONFIG", folder_ + "/config"}};
  const auto asked = [&](const std::string& text) {
    const auto store = open_store(text, variables);
    return store.ok() ? (*store)->leader().status().message() : store.status().message();
  };
  EXPECT_THAT(asked("kubernetes:job7"),
              HasSubstr("leases.coordination.k8s.io training/job7-head: "));
  EXPECT_THAT(asked("kubernetes:other/job7"),
              HasSubstr("leases.coordination.k8s.io other/job7-head: "));
  for (const std::string text :
       {"kubernetes:", "kubernetes:/", "kubernetes:/job7", "kubernetes:other/",
        "kubernetes:other/job7/more", "kubernetes:../job7", "kubernetes:job 7"}) {
    EXPECT_EQ(refusal(text, variables).code(), Code::kInvalidArgument) << text;
  }
  const Status none = refusal("kubernetes:job7", {{"KUBECONFIG", folder_ + "/none"}});
  EXPECT_EQ(none.message(), "kubernetes:job7: " + folder_ + "/none: No such file or directory");
}

TEST_F(OpenStoreTest, WithoutCertificatesOnlyThisMachineIsSpokenToInTheClear) {
  // Nobody listens on port 1: the failure says by which protocol it was tried.
  const auto plain = open_store("etcd://localhost:1/job7", {});
  EXPECT_THAT((*plain)->read().status().message(), HasSubstr("http://127.0.0.1:1: cannot connect"));
  const auto other = open_store("etcd://0.0.0.0:1/job7", {});
  EXPECT_THAT((*other)->read().status().message(), HasSubstr("https://0.0.0.0:1: cannot connect"));
}

}  // namespace
}  // namespace corro::coordinator
