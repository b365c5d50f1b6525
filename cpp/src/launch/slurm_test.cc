#include "launch/slurm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> text_of(const SlurmHosts& found) {
  std::vector<std::string> text;
  for (const HostSlots& host : found.hosts)
    text.push_back(host.name + ":" + std::to_string(host.slots));
  return text;
}

TEST(Slurm, AnAllocationIsHostsAndSlots) {
  const Variables job = {{"SLURM_JOB_ID", "7"},
                         {"SLURM_JOB_NODELIST", "node[01-03],gpu1"},
                         {"SLURM_TASKS_PER_NODE", "2(x3),1"}};
  const auto found = find_slurm_hosts(job).value();
  ASSERT_TRUE(found);
  EXPECT_THAT(text_of(*found), ElementsAre("node01:2", "node02:2", "node03:2", "gpu1:1"));
  EXPECT_EQ(found->source,
            "Slurm: SLURM_JOB_NODELIST=node[01-03],gpu1, SLURM_TASKS_PER_NODE=2(x3),1");
  EXPECT_FALSE(found->slots_asked_for);
}

TEST(Slurm, TasksThatTheUserAskedForAreKnownAsSuch) {
  Variables job = {{"SLURM_JOB_NODELIST", "a,b"}, {"SLURM_NTASKS_PER_NODE", "4"}};
  EXPECT_THAT(text_of(*find_slurm_hosts(job).value()), ElementsAre("a:4", "b:4"));
  EXPECT_TRUE(find_slurm_hosts(job).value()->slots_asked_for);
  job.erase("SLURM_NTASKS_PER_NODE");
  EXPECT_THAT(text_of(*find_slurm_hosts(job).value()), ElementsAre("a:1", "b:1"));
}

TEST(Slurm, OutsideOfSlurmAndInOneOfManyTasksThereIsNone) {
  EXPECT_FALSE(find_slurm_hosts({}).value());
  EXPECT_FALSE(find_slurm_hosts({{"SLURM_JOB_ID", "7"}}).value());
  const Variables rank = {{"SLURM_JOB_NODELIST", "a,b"},
                          {"SLURM_STEP_NODELIST", "a,b"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_PROCID", "1"},
                          {"SLURM_STEP_NUM_TASKS", "2"}};
  EXPECT_FALSE(find_slurm_hosts(rank).value());
}

TEST(Slurm, AStepOfOneTaskHasItsOwnNodes) {
  Variables step = {{"SLURM_JOB_NODELIST", "a,b"},      {"SLURM_TASKS_PER_NODE", "4(x2)"},
                    {"SLURM_STEP_NODELIST", "b"},       {"SLURM_STEP_ID", "3"},
                    {"SLURM_STEP_TASKS_PER_NODE", "1"}, {"SLURM_STEP_NUM_TASKS", "1"}};
  EXPECT_THAT(text_of(*find_slurm_hosts(step).value()), ElementsAre("b:1"));
  step["SLURM_STEP_ID"] = "4294967290";  // The shell of salloc.
  EXPECT_THAT(text_of(*find_slurm_hosts(step).value()), ElementsAre("a:4", "b:4"));
}

TEST(Slurm, WhatIsNotUnderstoodIsNamed) {
  const auto error_of = [](const Variables& variables) {
    const auto found = find_slurm_hosts(variables);
    EXPECT_EQ(found.status().code(), Code::kInvalidArgument);
    return found.status().message();
  };
  EXPECT_THAT(error_of({{"SLURM_JOB_NODELIST", "a[1"}}), HasSubstr("SLURM_JOB_NODELIST: 'a[1'"));
  EXPECT_THAT(error_of({{"SLURM_JOB_NODELIST", "a,b"}, {"SLURM_TASKS_PER_NODE", "2(x3)"}}),
              HasSubstr("SLURM_TASKS_PER_NODE=2(x3): expected the tasks of 2 nodes"));
  EXPECT_THAT(error_of({{"SLURM_JOB_NODELIST", "a"}, {"SLURM_NTASKS_PER_NODE", "many"}}),
              HasSubstr("SLURM_NTASKS_PER_NODE=many"));
  for (const char* text : {"", "2(x", "2(x)", "2x3", "0", "1,", "2(x99999999)", "(x2)"})
    EXPECT_FALSE(expand_tasks_per_node(text).ok()) << text;
}

}  // namespace
}  // namespace corro::launch
