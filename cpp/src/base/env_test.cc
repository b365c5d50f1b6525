#include "base/env.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

namespace corro {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Result<Environment> read(const Variables& variables) {
  return read_environment([&variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string error_of(const Variables& variables) {
  const auto environment = read(variables);
  EXPECT_EQ(environment.status().code(), Code::kInvalidArgument);
  EXPECT_EQ(environment.status().message().find('\n'), std::string::npos);
  return environment.status().message();
}

TEST(Environment, NothingSetMeansAWorldOfOne) {
  const Environment environment = read({}).value();
  EXPECT_FALSE(environment.rank || environment.size || environment.timeout);
  EXPECT_EQ(environment.launcher, "");
  EXPECT_FALSE(environment.local_tcp);
  EXPECT_FALSE(environment.deterministic);
}

TEST(Environment, ATimeMayBeZeroOnlyWhereThatMeansSomething) {
  EXPECT_EQ(read({{"CORRO_SPIN", "0"}}).value().spin, Duration::zero());
  EXPECT_THAT(error_of({{"CORRO_SPIN", "-1"}}), HasSubstr("a number of microseconds from 0"));
  EXPECT_THAT(error_of({{"CORRO_TIMEOUT", "0"}}), HasSubstr("a number of seconds above 0"));
}

TEST(Environment, WhatHasToBeTheSameOnAllRanksIsText) {
  EXPECT_EQ(common_settings(read({}).value()),
            "CORRO_TRANSPORT=shm CORRO_DETERMINISTIC=0 CORRO_COMMIT=0");
  EXPECT_EQ(
      common_settings(
          read({{"CORRO_TRANSPORT", "tcp"}, {"CORRO_DETERMINISTIC", "1"}, {"CORRO_COMMIT", "1"}})
              .value()),
      "CORRO_TRANSPORT=tcp CORRO_DETERMINISTIC=1 CORRO_COMMIT=1");
}

TEST(Environment, ATableServerIsNoRank) {
  const Environment server = read({{"CORRO_SERVER", "1"},
                                   {"CORRO_SERVERS", "2"},
                                   {"CORRO_SIZE", "4"},
                                   {"RANK", "3"},
                                   {"WORLD_SIZE", "8"}})
                                 .value();
  EXPECT_EQ(server.server, 1);
  EXPECT_EQ(server.servers, 2);
  EXPECT_EQ(server.size, 4) << "of its job, not of who has started that";
  EXPECT_FALSE(server.rank);
  EXPECT_EQ(server.launcher, "corro");
  const Environment later = read({{"CORRO_SERVER", "2"}, {"CORRO_SERVERS", "2"}}).value();
  EXPECT_EQ(later.server, 2) << "it came later";
  EXPECT_EQ(later.servers, 2);
  EXPECT_THAT(error_of({{"CORRO_SERVER", "0"}}), HasSubstr("CORRO_SERVERS is not set, or 0"));
  EXPECT_THAT(error_of({{"CORRO_SERVERS", "-1"}}), HasSubstr("a whole number from 0 to 1024"));
  EXPECT_THAT(error_of({{"CORRO_SIZE", "4"}}), HasSubstr("set both or none"));
}

TEST(Environment, RanksMayBeTheTableServers) {
  const Environment rank =
      read({{"CORRO_SERVERS", "ranks"}, {"CORRO_RANK", "1"}, {"CORRO_SIZE", "3"}}).value();
  EXPECT_TRUE(rank.ranks_serve);
  EXPECT_EQ(rank.servers, 3);
  EXPECT_FALSE(rank.server);
  EXPECT_EQ(read({{"CORRO_SERVERS", "ranks"}})->servers, 1);
  EXPECT_FALSE(read({{"CORRO_SERVERS", "2"}})->ranks_serve);
  EXPECT_THAT(error_of({{"CORRO_SERVERS", "rank"}}), HasSubstr("from 0 to 1024"));
}

TEST(Environment, ReadsItsOwnNames) {
  const Environment environment = read({{"CORRO_RANK", "3"},
                                        {"CORRO_SIZE", "8"},
                                        {"CORRO_LOCAL_RANK", "1"},
                                        {"CORRO_LOCAL_SIZE", "2"},
                                        {"CORRO_NODE_RANK", "1"},
                                        {"CORRO_NODES", "4"},
                                        {"CORRO_JOB_ID", "j"},
                                        {"CORRO_AGENT", "corro-agent-1"},
                                        {"CORRO_SERVERS", "3"},
                                        {"CORRO_JOB_UID", "7f-1"},
                                        {"CORRO_HEAD", "10.96.0.7:7077"},
                                        {"CORRO_SECRET_FILE", "/s"},
                                        {"CORRO_BOOTSTRAP", "dir:/shared/x"},
                                        {"CORRO_TRANSPORT", "tcp"},
                                        {"CORRO_LISTEN", "::1"},
                                        {"CORRO_HOST_ID", "h"},
                                        {"CORRO_DETERMINISTIC", "1"},
                                        {"CORRO_COMMIT", "1"},
                                        {"CORRO_TIMEOUT", "2.5"},
                                        {"CORRO_SPIN", "50"},
                                        {"CORRO_FUSION_BYTES", "8388608"},
                                        {"CORRO_ALGORITHMS", "allreduce=ring"}})
                                      .value();
  EXPECT_EQ(environment.launcher, "corro");
  EXPECT_EQ(environment.rank, 3);
  EXPECT_EQ(environment.size, 8);
  EXPECT_EQ(environment.local_rank, 1);
  EXPECT_EQ(environment.local_size, 2);
  EXPECT_EQ(environment.node_rank, 1);
  EXPECT_EQ(environment.nodes, 4);
  EXPECT_EQ(environment.job_id, "j");
  EXPECT_EQ(environment.agent, "corro-agent-1");
  EXPECT_EQ(environment.servers, 3);
  EXPECT_FALSE(environment.server);
  EXPECT_EQ(environment.pod_job, "7f-1");
  EXPECT_EQ(environment.pod_head, "10.96.0.7:7077");
  EXPECT_EQ(environment.secret_file, "/s");
  EXPECT_EQ(environment.bootstrap_directory, "/shared/x");
  EXPECT_TRUE(environment.local_tcp);
  EXPECT_EQ(environment.listen, "::1");
  EXPECT_EQ(environment.host_id, "h");
  EXPECT_TRUE(environment.deterministic);
  EXPECT_TRUE(environment.commit);
  EXPECT_EQ(environment.timeout, std::chrono::milliseconds(2500));
  EXPECT_EQ(environment.spin, std::chrono::microseconds(50));
  EXPECT_EQ(environment.fusion_bytes, 8U << 20U);
  EXPECT_EQ(environment.algorithms, "allreduce=ring");
}

TEST(Environment, UnderstandsOtherLaunchers) {
  const Variables torchrun = {
      {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"TORCHELASTIC_RUN_ID", "t"}};
  EXPECT_EQ(read(torchrun)->launcher, "torchrun");
  EXPECT_EQ(read(torchrun)->local_rank, 1);
  EXPECT_EQ(read(torchrun)->job_id, "t");
  EXPECT_EQ(read({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}})->launcher,
            "Open MPI");
  EXPECT_EQ(read({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}})->local_rank, 1);
  EXPECT_EQ(read({{"FLUX_TASK_RANK", "1"}, {"FLUX_JOB_SIZE", "2"}})->rank, 1);
  EXPECT_EQ(read({{"JSM_NAMESPACE_RANK", "1"}, {"JSM_NAMESPACE_SIZE", "2"}})->rank, 1);
  EXPECT_EQ(read({{"MV2_COMM_WORLD_RANK", "1"}, {"MV2_COMM_WORLD_SIZE", "2"}})->rank, 1);
  EXPECT_EQ(read({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NODEID", "0"}})
                ->node_rank,
            0);
}

TEST(Environment, TheInnermostLauncherWinsWholly) {
  const Environment environment = read({{"CORRO_RANK", "0"},
                                        {"CORRO_SIZE", "1"},
                                        {"RANK", "1"},
                                        {"WORLD_SIZE", "2"},
                                        {"LOCAL_RANK", "1"},
                                        {"SLURM_PROCID", "5"},
                                        {"SLURM_STEP_NUM_TASKS", "9"}})
                                      .value();
  EXPECT_EQ(environment.launcher, "corro");
  EXPECT_EQ(environment.size, 1);
  EXPECT_FALSE(environment.local_rank.has_value()) << "not torchrun's";
}

TEST(Environment, SaysWhereTheRanksOfOthersMeet) {
  Variables mpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                   {"OMPI_COMM_WORLD_SIZE", "2"},
                   {"OMPI_MCA_orte_hnp_uri", "7.0;tcp://10.0.0.1,10.1.0.1:4711"},
                   {"PMIX_NAMESPACE", "458753"},
                   {"SLURM_JOB_ID", "9"}};
  EXPECT_THAT(read(mpi)->meeting_hosts, ElementsAre("10.0.0.1", "10.1.0.1"));
  EXPECT_EQ(read(mpi)->job_id, "458753");
  mpi["CORRO_RUN"] = "7f";
  EXPECT_EQ(read(mpi)->job_id, "458753.7f") << "a launcher's container that was started again";
  mpi.erase("OMPI_MCA_orte_hnp_uri");
  mpi["PMIX_NAMESPACE"] = "prterun-node7-4711@1";
  EXPECT_THAT(read(mpi)->meeting_hosts, ElementsAre("node7"));
  Variables slurm = {{"SLURM_PROCID", "1"},
                     {"SLURM_STEP_NUM_TASKS", "2"},
                     {"SLURM_JOB_ID", "9"},
                     {"SLURM_STEP_ID", "3"},
                     {"SLURM_NODEID", "1"},
                     {"SLURM_STEP_NODELIST", "n[02-03]"},
                     {"SLURM_JOB_NODELIST", "n[01-03]"}};
  EXPECT_THAT(read(slurm)->meeting_hosts, ElementsAre("n02"));
  EXPECT_EQ(read(slurm)->job_id, "9.3");
  slurm["CORRO_BOOTSTRAP"] = "tcp:[fd00::1]:4711";
  EXPECT_THAT(read(slurm)->meeting_hosts, ElementsAre("fd00::1"));
  EXPECT_EQ(read(slurm)->meeting_port, 4711);
  slurm.erase("CORRO_BOOTSTRAP");
  slurm["SLURM_STEP_NODELIST"] = "n[";
  EXPECT_THAT(error_of(slurm), HasSubstr("SLURM_STEP_NODELIST: 'n['"));
  for (const char* bad : {"tcp:", "tcp:node7", "tcp::80", "tcp:node7:0", "tcp:node7:99999"})
    EXPECT_THAT(error_of({{"CORRO_BOOTSTRAP", bad}}), HasSubstr("tcp:HOST:PORT")) << bad;
}

TEST(Environment, KnowsWhetherAllRanksAreOnOneHost) {
  EXPECT_EQ(on_one_host(read({}).value()), std::nullopt);
  const Variables two = {{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
  EXPECT_EQ(on_one_host(read(two).value()), false);
  const Variables one = {
      {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_NUM_NODES", "1"}};
  EXPECT_EQ(on_one_host(read(one).value()), true);
  Variables elastic = one;
  elastic["CORRO_MEMBER_UUID"] = "00";
  EXPECT_EQ(on_one_host(read(elastic).value()), true);
  elastic["CORRO_ELASTIC"] = "1";
  EXPECT_EQ(on_one_host(read(elastic).value()), std::nullopt) << "hosts may come";
}

TEST(Environment, TheUsersOwnSecretIsWhereConfigurationIs) {
  EXPECT_EQ(read({{"HOME", "/home/me"}})->user_secret_file, "/home/me/.config/corro/secret");
  EXPECT_EQ(read({{"HOME", "/home/me"}, {"XDG_CONFIG_HOME", "/c"}})->user_secret_file,
            "/c/corro/secret");
  EXPECT_EQ(read({})->user_secret_file, "");
}

TEST(Environment, ABatchScriptOfSlurmIsNotARank) {
  const Environment environment =
      read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_NUM_NODES", "4"}}).value();
  EXPECT_FALSE(environment.rank.has_value());
  EXPECT_EQ(environment.scheduler_nodes, 4);
}

TEST(Environment, StrayHalvesOfOthersAreIgnoredAndOurOwnAreNot) {
  EXPECT_FALSE(read({{"RANK", "colonel"}})->rank.has_value());
  EXPECT_THAT(error_of({{"CORRO_RANK", "1"}}),
              HasSubstr("CORRO_RANK=1 is set, but CORRO_SIZE is not"));
  EXPECT_THAT(error_of({{"CORRO_SIZE", "2"}}),
              HasSubstr("CORRO_SIZE=2 is set, but CORRO_RANK is not"));
}

TEST(Environment, ErrorsNameVariableAndValue) {
  EXPECT_THAT(error_of({{"CORRO_RANK", "x1"}, {"CORRO_SIZE", "2"}}), HasSubstr("CORRO_RANK=x1"));
  EXPECT_THAT(error_of({{"CORRO_RANK", "2"}, {"CORRO_SIZE", "2"}}),
              HasSubstr("a rank below CORRO_SIZE=2"));
  EXPECT_THAT(error_of({{"CORRO_RANK", "0"}, {"CORRO_SIZE", "0"}}), HasSubstr("CORRO_SIZE=0"));
  EXPECT_THAT(error_of({{"RANK", "0"}, {"WORLD_SIZE", "99999999999"}}),
              HasSubstr("WORLD_SIZE=99999999999"));
  EXPECT_THAT(
      error_of(
          {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "3"}, {"LOCAL_WORLD_SIZE", "2"}}),
      HasSubstr("LOCAL_RANK=3"));
  EXPECT_THAT(error_of({{"CORRO_TRANSPORT", "pigeon"}}),
              HasSubstr("CORRO_TRANSPORT=pigeon: expected shm or tcp"));
  EXPECT_THAT(error_of({{"CORRO_BOOTSTRAP", "/tmp/x"}}),
              HasSubstr("CORRO_BOOTSTRAP=/tmp/x: expected dir:PATH"));
  EXPECT_THAT(error_of({{"CORRO_DETERMINISTIC", "maybe"}}), HasSubstr("expected 0 or 1"));
  EXPECT_THAT(error_of({{"CORRO_COMMIT", "yes"}}), HasSubstr("expected 0 or 1"));
  EXPECT_THAT(error_of({{"CORRO_FUSION_BYTES", "64MB"}}), HasSubstr("CORRO_FUSION_BYTES=64MB"));
  for (const char* bad : {"-1", "0", "1e-12", "nan", "inf", "1e300", "5s", " "}) {
    EXPECT_THAT(error_of({{"CORRO_TIMEOUT", bad}}), HasSubstr(std::string("CORRO_TIMEOUT=") + bad));
  }
}

TEST(Environment, EmptyCountsAsNotSet) {
  EXPECT_FALSE(
      read({{"CORRO_RANK", ""}, {"CORRO_SIZE", ""}, {"CORRO_TIMEOUT", ""}})->rank.has_value());
}

TEST(Environment, EveryVariableIsInTheDocument) {
  std::set<std::string> asked;
  ASSERT_TRUE(read_environment([&asked](const char* name) {
                asked.insert(name);
                return std::optional<std::string>();
              }).ok());
  for (const char* detail :
       {"CORRO_LOCAL_RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"}) {
    asked.insert(detail);
  }
  std::ifstream file(CORRO_ENVIRONMENT_DOCUMENT);
  std::stringstream document;
  document << file.rdbuf();
  EXPECT_GT(asked.size(), 20U);
  for (const std::string& name : asked) EXPECT_THAT(document.str(), HasSubstr("`" + name));
}

}  // namespace
}  // namespace corro
