#include "kube/user/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "kube/job/read_job.h"

namespace corro::kube {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

ClusterRun some_run() {
  return {.name = "train-1a2b3",
          .space = "ml",
          .image = "corro-python:1",
          .command = {"python3", "train.py"},
          .env = {},
          .ranks = 8};
}

/// Read as the operator reads it.
JobSpec read(const ClusterRun& run) {
  Result<Json> job = job_of(run);
  EXPECT_TRUE(job.ok()) << job.status().message();
  (*job)["metadata"]["uid"] = "u-1";
  const ReadJob read = read_job(*job, {});
  for (const Problem& problem : read.problems) ADD_FAILURE() << problem.path << problem.what;
  return read.spec;
}

TEST(Manifest, IsAJobOfSoManyPods) {
  ClusterRun run = some_run();
  run.slots = 4;
  const JobSpec spec = read(run);
  EXPECT_EQ(spec.workers, 2);
  EXPECT_EQ(spec.slots, 4);
  EXPECT_FALSE(spec.is_elastic());
  const Json& container = spec.worker.pod_template["spec"]["containers"][0];
  EXPECT_EQ(container["image"], "corro-python:1");
  EXPECT_EQ(container["command"], Json::array({"python3", "train.py"}));
  EXPECT_EQ(spec.restart[static_cast<size_t>(Cause::kUserError)].limit, 0);
}

TEST(Manifest, IsElasticWithALeastOrAMost) {
  ClusterRun run = some_run();
  run.least = 4;
  JobSpec spec = read(run);
  EXPECT_TRUE(spec.is_elastic());
  EXPECT_EQ(spec.least_workers, 4);
  EXPECT_EQ(spec.most_workers, 8);
  run.least.reset();
  run.most = 12;
  spec = read(run);
  EXPECT_EQ(spec.least_workers, 8);
  EXPECT_EQ(spec.most_workers, 12);
}

TEST(Manifest, HasVolumesVariablesAndResources) {
  ClusterRun run = some_run();
  run.volumes = {"data:/data:ro", "state:/out"};
  run.resources = {"cpu=4", "nvidia.com/gpu=1"};
  run.env = {{"LR", "0.1"}};
  const Json pod = read(run).worker.pod_template["spec"];
  const Json& container = pod["containers"][0];
  EXPECT_EQ(pod["volumes"][0]["persistentVolumeClaim"]["claimName"], "data");
  EXPECT_EQ(container["volumeMounts"][0]["readOnly"], true);
  EXPECT_EQ(container["volumeMounts"][1]["mountPath"], "/out");
  EXPECT_EQ(container["resources"]["requests"]["cpu"], "4");
  EXPECT_FALSE(container["resources"]["limits"].contains("cpu"));
  EXPECT_EQ(container["resources"]["limits"]["nvidia.com/gpu"], "1");
  EXPECT_EQ(container["env"][0]["value"], "0.1");
}

TEST(Manifest, HasTheFoldersPlace) {
  ClusterRun run = some_run();
  run.sync = "/home/me/my project/";
  EXPECT_EQ(read(run).sync, "/workspace/my project");
  EXPECT_EQ(folder_in_pods("/"), "/workspace/work");
  EXPECT_EQ(folder_in_pods("/a/b:c"), "/workspace/b-c");
}

TEST(Manifest, SaysWhatIsWrong) {
  const auto why = [](const auto& change) {
    ClusterRun run = some_run();
    change(run);
    return job_of(run).status().message();
  };
  EXPECT_EQ(why([](ClusterRun& run) { run.slots = 3; }), "-np 8: no multiple of --slots 3");
  EXPECT_EQ(why([](ClusterRun& run) { run.ranks = 0; }), "-np 0: has to be at least 1");
  EXPECT_EQ(why([](ClusterRun& run) { run.least = 9; }), "--min-np 9: more than -np 8");
  EXPECT_EQ(why([](ClusterRun& run) { run.most = 7; }), "--max-np 7: less than -np 8");
  EXPECT_THAT(why([](ClusterRun& run) { run.volumes = {"data"}; }), HasSubstr("CLAIM:/path"));
  EXPECT_THAT(why([](ClusterRun& run) { run.resources = {"cpu"}; }), HasSubstr("cpu=4"));
  for (const char* amount : {"lots", "4GB", "-1", ".", "1 2", "0x4"}) {
    const auto asks = [amount](ClusterRun& run) { run.resources = {std::string("cpu=") + amount}; };
    EXPECT_THAT(why(asks), HasSubstr(fmt::format("--resource cpu={0}: {0} is no amount", amount)));
  }
  EXPECT_EQ(why([](ClusterRun& run) { run.resources = {"nvidia.com/gpu=500m"}; }),
            "--resource nvidia.com/gpu=500m: nvidia.com/gpu come as a whole");
  for (const char* amount : {"4", "0.5", "500m", "8Gi", "1e3"}) {
    const auto asks = [amount](ClusterRun& run) {
      run.resources = {std::string("memory=") + amount};
    };
    EXPECT_EQ(why(asks), "");
  }
}

TEST(Manifest, NamesAJobAfterItsProgram) {
  EXPECT_EQ(name_of_run("src/Train_MNIST.py", "0a1b2"), "train-mnist-0a1b2");
  EXPECT_EQ(name_of_run("my.module", "0a1b2"), "my-0a1b2");
  EXPECT_EQ(name_of_run("2024.py", "0a1b2"), "run-0a1b2");
  EXPECT_EQ(name_of_run(std::string(90, 'x'), "0a1b2").size(), 46U);
}

}  // namespace
}  // namespace corro::kube
