#include "launch/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "launch/ranks.h"
#include "launch/scheduler.h"

namespace corro::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string no_file(const std::string& /*path*/) { return ""; }

/// Files that exist; those that end in .py or .txt cannot be executed.
FileFacts files(std::set<std::string> paths) {
  return {.directory = "/home/me",
          .exists = [paths](const std::string& path) { return paths.contains(path); },
          .executable =
              [paths](const std::string& path) {
                return paths.contains(path) && !path.ends_with(".py") && !path.ends_with(".txt");
              },
          .same = std::equal_to<std::string>()};
}

PlanInputs inputs() {
  PlanInputs made;
  made.environment = {{"PATH", "/usr/bin:/bin"}, {"HOME", "/home/me"}};
  made.machine.host = "node7";
  made.machine.facts = {.gpus = 0, .cores = 2, .cpu_quota = 0, .memory_bytes = 8ULL << 30U};
  made.machine.processors = {{0, 0, 0, 0}, {1, 1, 0, 0}};
  made.files = files({"train.py", "/usr/bin/python3", "/bin/echo", "notes.txt", "here"});
  made.own_directory = "/opt/corro/bin";
  made.job_id = "abc";
  made.time = "20260101-000000";
  made.master_port = 23456;
  return made;
}

RunOptions run(std::vector<std::string> command, std::optional<int> ranks = {}) {
  RunOptions options;
  options.command = std::move(command);
  options.ranks = ranks;
  return options;
}

TEST(ChooseRanks, OnePerGpuIfThereAreAny) {
  EXPECT_EQ(choose_ranks({.gpus = 8, .cores = 2}).ranks, 8);
}

TEST(ChooseRanks, OnePerCoreOnSmallMachinesAndFewerOnLargeOnes) {
  EXPECT_EQ(choose_ranks({.cores = 1}).ranks, 1);
  EXPECT_EQ(choose_ranks({.cores = 2}).ranks, 2);
  EXPECT_EQ(choose_ranks({.cores = 8}).ranks, 8);
  EXPECT_EQ(choose_ranks({.cores = 16}).ranks, 8);
  EXPECT_EQ(choose_ranks({.cores = 64}).ranks, 16);
}

TEST(ChooseRanks, KeepsToTheQuotaAndToTheMemory) {
  EXPECT_EQ(choose_ranks({.cores = 64, .cpu_quota = 2.5}).ranks, 2);
  EXPECT_EQ(choose_ranks({.cores = 64, .cpu_quota = 0.5}).ranks, 1);
  const RankChoice choice = choose_ranks({.cores = 8, .memory_bytes = 3ULL << 30U});
  EXPECT_EQ(choice.ranks, 3);
  EXPECT_THAT(choice.reason, HasSubstr("memory"));
  EXPECT_EQ(choose_ranks({.cores = 8, .memory_bytes = 1000}).ranks, 1);
}

TEST(VisibleGpus, FollowsCudaVisibleDevices) {
  EXPECT_EQ(agent::visible_gpus(4, {}), 4);
  EXPECT_EQ(agent::visible_gpus(4, {{"CUDA_VISIBLE_DEVICES", "0,2"}}), 2);
  EXPECT_EQ(agent::visible_gpus(4, {{"CUDA_VISIBLE_DEVICES", ""}}), 0);
  EXPECT_EQ(agent::visible_gpus(4, {{"CUDA_VISIBLE_DEVICES", "1,-1,2"}}), 1);
}

std::vector<agent::Processor> two_sockets() {
  std::vector<agent::Processor>
      processors;  // 2 nodes x 4 cores x 2 threads, numbered as Linux does
  for (int id = 0; id < 16; ++id) processors.push_back({id, id % 8, id % 8 / 4, id % 8 / 4});
  return processors;
}

TEST(Binding, GivesEachRankNeighbouringCoresWithAllTheirThreads) {
  const auto binding = decide_binding(Bind::kAuto, 2, two_sockets());
  ASSERT_TRUE(binding.ok());
  EXPECT_THAT(binding->ranks[0], ElementsAre(0, 1, 2, 3, 8, 9, 10, 11));
  EXPECT_THAT(binding->ranks[1], ElementsAre(4, 5, 6, 7, 12, 13, 14, 15));
}

TEST(Binding, AutoLeavesRanksAloneWhereCoresAreFew) {
  EXPECT_TRUE(decide_binding(Bind::kAuto, 1, two_sockets())->ranks.empty());
  EXPECT_TRUE(decide_binding(Bind::kAuto, 5, two_sockets())->ranks.empty());
  EXPECT_TRUE(decide_binding(Bind::kNone, 2, two_sockets())->ranks.empty());
}

TEST(Binding, CoreWantsACoreForEachRank) {
  EXPECT_EQ(decide_binding(Bind::kCore, 8, two_sockets())->ranks[7], (std::vector<int>{7, 15}));
  const auto refused = decide_binding(Bind::kCore, 9, two_sockets());
  EXPECT_EQ(refused.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr("9 ranks but only 8 cores"));
}

TEST(Scheduler, NothingIsAnnouncedOnAnOrdinaryMachine) {
  EXPECT_FALSE(find_surplus({{"SLURM_JOB_NUM_NODES", "1"}, {"PET_NNODES", "1:1"}}, no_file));
}

TEST(Scheduler, NoticesEverySchedulerWithMoreNodes) {
  const std::vector<std::pair<std::string, std::string>> announced = {
      {"SLURM_JOB_NUM_NODES", "4"},
      {"SLURM_NNODES", "2"},
      {"SLURM_STEP_NUM_TASKS", "8"},
      {"PBS_NUM_NODES", "2"},
      {"PET_NNODES", "1:4"},
      {"OMPI_COMM_WORLD_SIZE", "2"},
      {"PMI_SIZE", "2"},
      {"GROUP_WORLD_SIZE", "2"},
      {"SKYPILOT_NUM_NODES", "2"},
      {"AZUREML_NODE_COUNT", "2"},
      {"CORRO_NODES", "2"},
      {"CORRO_SIZE", "2"},
      {"LSB_MCPU_HOSTS", "h1 4 h2 4"},
      {"LSB_HOSTS", "h1 h1 h2"},
      {"FLUX_JOB_SIZE", "2"},
      {"FLUX_JOB_NNODES", "2"},
      {"COBALT_JOBSIZE", "2"},
      {"JSM_NAMESPACE_SIZE", "2"},
      {"MV2_COMM_WORLD_SIZE", "2"},
      {"AWS_BATCH_JOB_NUM_NODES", "2"},
      {"SM_HOSTS", R"(["a","b"])"}};
  for (const auto& [name, value] : announced) {
    const auto surplus = find_surplus({{name, value}}, no_file);
    ASSERT_TRUE(surplus) << name;
    EXPECT_THAT(refusal(*surplus), HasSubstr(name));
    EXPECT_THAT(refusal(*surplus), HasSubstr("--allow-single-node"));
  }
}

TEST(Scheduler, CountsTheHostsOfAPbsNodeFileAndThePodsOfKubernetes) {
  const auto file = [](const std::string& path) { return path == "/nodes" ? "h1\nh1\nh2\n" : ""; };
  EXPECT_TRUE(find_surplus({{"PBS_NODEFILE", "/nodes"}}, file));
  EXPECT_FALSE(find_surplus({{"PBS_NODEFILE", "/other"}}, file));
  Variables pod = {{"WORLD_SIZE", "3"}, {"MASTER_ADDR", "job-0"}, {"KUBERNETES_SERVICE_HOST", "x"}};
  EXPECT_TRUE(find_surplus(pod, no_file));
  pod["MASTER_ADDR"] = "localhost";
  EXPECT_FALSE(find_surplus(pod, no_file));
}

TEST(Scheduler, SaysByWhichFileOfItsHostsAllAreUsed) {
  const auto file = [](const std::string& path) -> std::string {
    if (path == "/pe") return "h1 4 all.q@h1 UNDEFINED\nh2 4 all.q@h2 UNDEFINED\n";
    return path == "/nodes" ? "h1\nh1\nh2\n" : "";
  };
  for (const std::string name :
       {"PBS_NODEFILE", "LSB_DJOB_HOSTFILE", "COBALT_NODEFILE", "OAR_NODEFILE", "OAR_NODE_FILE"}) {
    const auto surplus = find_surplus({{name, "/nodes"}, {"PBS_NUM_NODES", "2"}}, file);
    ASSERT_TRUE(surplus) << name;
    EXPECT_THAT(refusal(*surplus), HasSubstr("2 nodes (" + name + ")"));
    EXPECT_THAT(refusal(*surplus), HasSubstr("to use all, give --hostfile $" + name + "; "));
  }
  const auto surplus = find_surplus({{"PE_HOSTFILE", "/pe"}}, file);
  ASSERT_TRUE(surplus);
  EXPECT_THAT(refusal(*surplus), HasSubstr(R"(<(awk '{print $1":"$2}' $PE_HOSTFILE))"));
  EXPECT_FALSE(find_surplus({{"LSB_HOSTS", "h1 h1"}, {"FLUX_JOB_NNODES", "1"}}, file));
}

TEST(Scheduler, AJobOfWhoseHostsNothingIsKnownIsSaid) {
  const auto file = [](const std::string& path) { return path == "/one" ? "h1\nh1\n" : ""; };
  const auto line_of = [&](const Variables& environment) {
    return describe_unknown_hosts(environment, file);
  };
  for (const char* name : {"PBS_JOBID", "LSB_JOBID", "PE_HOSTFILE", "FLUX_JOB_ID", "FLUX_URI",
                           "COBALT_JOBID", "OAR_JOB_ID"})
    EXPECT_THAT(line_of({{name, "7"}}), HasSubstr(name));
  EXPECT_THAT(line_of({{"PBS_JOBID", "7"}, {"PBS_NODEFILE", "/unreadable"}}), HasSubstr("PBS"));
  EXPECT_EQ(line_of({{"PBS_JOBID", "7"}, {"PBS_NODEFILE", "/one"}}), "");
  EXPECT_EQ(line_of({{"LSB_JOBID", "7"}, {"LSB_HOSTS", "h1"}}), "");
  EXPECT_EQ(line_of({{"FLUX_JOB_ID", "7"}, {"FLUX_JOB_NNODES", "1"}}), "");
  EXPECT_THAT(line_of({{"FLUX_JOB_ID", "7"}, {"FLUX_JOB_SIZE", "1"}}), HasSubstr("FLUX_JOB_ID"));
  EXPECT_EQ(line_of({{"SLURM_JOB_ID", "7"}}), "");
}

TEST(MakePlan, SaysThatASchedulersHostsAreNotKnown) {
  PlanInputs flux = inputs();
  flux.environment["FLUX_URI"] = "local:///run/flux/local";
  RunOptions options = run({"train.py"});
  const auto plan = make_plan(options, flux).value();
  EXPECT_THAT(announce_plan(plan), HasSubstr("corro: this is a job of Flux (FLUX_URI)"));
  EXPECT_THAT(describe_plan(plan), HasSubstr("corro: this is a job of Flux (FLUX_URI)"));
  options.allow_single_node = true;
  EXPECT_EQ(make_plan(options, flux)->unknown_hosts, "");
  options.allow_single_node = false;
  options.hosts = "localhost:2";
  EXPECT_EQ(make_plan(options, flux)->unknown_hosts, "");
}

TEST(MakePlan, SaysThatASchedulersHostsAreNotKnownAlsoWhenQuiet) {
  PlanInputs flux = inputs();
  flux.environment["FLUX_URI"] = "local:///run/flux/local";
  flux.environment["CORRO_DETERMINSTIC"] = "1";
  RunOptions options = run({"train.py"});
  options.quiet = true;
  const std::string said = announce_plan(make_plan(options, flux).value());
  EXPECT_THAT(said, StartsWith("corro: this is a job of Flux (FLUX_URI)"));
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  options.allow_single_node = true;
  EXPECT_EQ(announce_plan(make_plan(options, flux).value()), "");
}

TEST(MakePlan, RefusesToTrainAloneUnlessToldTo) {
  PlanInputs many = inputs();
  many.environment["SLURM_JOB_NUM_NODES"] = "4";
  const auto refused = make_plan(run({"train.py"}), many);
  EXPECT_EQ(refused.status().code(), Code::kFailedPrecondition);
  RunOptions options = run({"train.py"});
  options.allow_single_node = true;
  EXPECT_TRUE(make_plan(options, many).ok());
}

PlanInputs in_allocation() {
  PlanInputs facts = inputs();
  facts.environment["SLURM_JOB_NUM_NODES"] = "2";
  facts.environment["SLURM_JOB_NODELIST"] = "n[1-2]";
  facts.environment["SLURM_TASKS_PER_NODE"] = "2(x2)";
  facts.environment["SLURMD_NODENAME"] = "n1";
  return facts;
}

TEST(MakePlan, TakesTheHostsThatSlurmHasGiven) {
  const auto plan = make_plan(run({"train.py"}), in_allocation()).value();
  ASSERT_EQ(plan.job.hosts.size(), 2U);
  EXPECT_TRUE(plan.job.hosts[0].own) << "a node may have another name than its host";
  EXPECT_EQ(plan.job.hosts[1].name, "n2");
  EXPECT_EQ(plan.job.ranks, 4);
  EXPECT_THAT(describe_plan(plan), HasSubstr("hosts from Slurm: SLURM_JOB_NODELIST=n[1-2]"));
}

TEST(MakePlan, WhatTheUserSaysWinsOverSlurm) {
  RunOptions options = run({"train.py"});
  options.ranks = 3;
  EXPECT_EQ(make_plan(options, in_allocation())->job.ranks, 3);
  options.ranks = 5;
  EXPECT_THAT(make_plan(options, in_allocation()).status().message(),
              AllOf(HasSubstr("SLURM_TASKS_PER_NODE=2(x2)"), HasSubstr("-np 5")));
  options.hosts = "a:5";
  EXPECT_EQ(make_plan(options, in_allocation())->job.hosts[0].name, "a");
  options.hosts.clear();
  options.allow_single_node = true;
  EXPECT_EQ(make_plan(options, in_allocation())->job.hosts.size(), 1U);
}

TEST(MakePlan, OnOneHostSlurmsTasksCountIfTheUserHasNamedThem) {
  PlanInputs alone = in_allocation();
  alone.environment["SLURM_JOB_NUM_NODES"] = "1";
  alone.environment["SLURM_JOB_NODELIST"] = "n1";
  alone.environment["SLURM_TASKS_PER_NODE"] = "3";
  EXPECT_EQ(make_plan(run({"train.py"}), alone)->hosts_source, "");
  alone.environment["SLURM_NTASKS"] = "3";
  EXPECT_EQ(make_plan(run({"train.py"}), alone)->job.ranks, 3);
  RunOptions options = run({"train.py"});
  options.ranks = 5;
  EXPECT_EQ(make_plan(options, alone)->job.ranks, 5);
}

TEST(MakePlan, ATaskOfSeveralThatSrunHasStartedIsNoLauncher) {
  PlanInputs task = in_allocation();
  task.environment["SLURM_STEP_NUM_TASKS"] = "2";
  EXPECT_THAT(make_plan(run({"train.py"}), task).status().message(),
              HasSubstr("srun announces 2 copies of this launcher"));
}

TEST(MakePlan, GivesAScriptTheInterpreterOfTheEnvironment) {
  PlanInputs facts = inputs();
  auto plan = make_plan(run({"train.py", "--lr", "1"}), facts);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->command.program, "/usr/bin/python3");
  EXPECT_THAT(plan->command.arguments,
              ElementsAre("/usr/bin/python3", "-u", "train.py", "--lr", "1"));
  EXPECT_EQ(plan->command.name, "train");
  facts.files = files({"train.py", "/usr/bin/python3", "/opt/corro/bin/python"});
  EXPECT_EQ(make_plan(run({"train.py"}), facts)->command.program, "/opt/corro/bin/python");
  facts.environment["VIRTUAL_ENV"] = "/venv";
  facts.files = files({"train.py", "/opt/corro/bin/python", "/venv/bin/python"});
  EXPECT_EQ(make_plan(run({"train.py"}), facts)->command.program, "/venv/bin/python");
}

TEST(MakePlan, KnowsTheInterpreterThatTheUserPassedBy) {
  PlanInputs facts = inputs();
  facts.files = files({"train.py", "/usr/bin/python3", "/opt/corro/bin/python"});
  const std::vector<std::string> system = {"/usr/bin/python3", "train.py"};
  EXPECT_EQ(make_plan(run(system), facts)->command.other_python, "/opt/corro/bin/python");
  EXPECT_EQ(make_plan(run({"train.py"}), facts)->command.other_python, "");
  EXPECT_EQ(make_plan(run({"/opt/corro/bin/python", "train.py"}), facts)->command.other_python, "");
  const auto missing = make_plan(run({"python", "train.py"}), facts);
  EXPECT_THAT(missing.status().message(),
              HasSubstr("no program 'python' on PATH (leave it out: "
                        "`corro run` then takes /opt/corro/bin/python)"));
}

TEST(MakePlan, AProgramOnTheCommandLineNeedsItsInterpreter) {
  const auto missing = make_plan(run({"python", "-c", "1"}), inputs());
  EXPECT_THAT(missing.status().message(), Not(HasSubstr("leave it out")));
}

TEST(MakePlan, SaysThatAFileIsNoModule) {
  RunOptions module = run({"train.py"});
  module.module = true;
  EXPECT_THAT(make_plan(module, inputs()).status().message(), HasSubstr("leave -m out"));
  module.command = {"dir/train"};
  EXPECT_THAT(make_plan(module, inputs()).status().message(), HasSubstr("leave -m out"));
  EXPECT_THAT(make_plan(run({"python3", "-m", "train.py"}), inputs()).status().message(),
              HasSubstr("leave -m out"));
}

TEST(MakePlan, StartsModulesAndOtherPrograms) {
  RunOptions module = run({"my.train", "x"});
  module.module = true;
  EXPECT_THAT(make_plan(module, inputs())->command.arguments,
              ElementsAre("/usr/bin/python3", "-u", "-m", "my.train", "x"));
  EXPECT_EQ(make_plan(run({"echo", "hi"}), inputs())->command.program, "/bin/echo");
  const auto plan = make_plan(run({"python3", "-u", "train.py"}), inputs());
  EXPECT_EQ(plan->command.name, "train");
}

TEST(MakePlan, SaysInOneLineWhatIsMissing) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> mistakes = {
      {{}, "no program given"},
      {{"trian.py"}, "trian.py: no such file in /home/me"},
      {{"python3", "-u", "trian.py"}, "trian.py: no such file in /home/me"},
      {{"python3", "/data/x"}, "/data/x: no such file"},
      {{"nope"}, "no program 'nope' on PATH"},
      {{"cd x && python train.py"}, "bash -c 'cd x && python train.py'"},
      {{"here"}, "write ./ in front"},
      {{"./nope"}, "./nope: no such file"}};
  for (const auto& [command, words] : mistakes) {
    const auto plan = make_plan(run(command), inputs());
    ASSERT_FALSE(plan.ok());
    EXPECT_THAT(plan.status().message(), HasSubstr(words));
    EXPECT_THAT(plan.status().message(), Not(HasSubstr("\n")));
  }
  EXPECT_TRUE(make_plan(run({"python3", "-m", "nope"}), inputs()).ok()) << "Python finds modules";
  EXPECT_TRUE(make_plan(run({"echo", "nope"}), inputs()).ok());
  EXPECT_EQ(make_plan(run({"./notes.txt"}), inputs()).status().code(), Code::kNotFound);
  EXPECT_EQ(make_plan(run({"echo"}, 0), inputs()).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(make_plan(run({"echo"}, 99999), inputs()).status().code(), Code::kInvalidArgument);
}

TEST(MakePlan, RefusesToShowRanksThatWillNotExist) {
  RunOptions options = run({"echo"}, 2);
  options.show = {screen::ShowMode::kRanks, {0, 3}};
  EXPECT_THAT(make_plan(options, inputs()).status().message(), HasSubstr("0 to 1"));
}

TEST(Environment, HasOurNamesAndTorchruns) {
  const auto plan = make_plan(run({"train.py"}, 4), inputs());
  const Variables rank = environment_of(*plan, plan->job.seat_of(3));
  const Variables wanted = {
      {"CORRO_RUN", "1"},
      {"CORRO_RANK", "3"},
      {"CORRO_SIZE", "4"},
      {"CORRO_LOCAL_RANK", "3"},
      {"CORRO_LOCAL_SIZE", "4"},
      {"CORRO_NODE_RANK", "0"},
      {"CORRO_NODES", "1"},
      {"CORRO_JOB_ID", "abc"},
      {"CORRO_AGENT", "corro-abc"},
      {"RANK", "3"},
      {"WORLD_SIZE", "4"},
      {"LOCAL_RANK", "3"},
      {"LOCAL_WORLD_SIZE", "4"},
      {"GROUP_RANK", "0"},
      {"GROUP_WORLD_SIZE", "1"},
      {"ROLE_RANK", "3"},
      {"ROLE_WORLD_SIZE", "4"},
      {"ROLE_NAME", "default"},
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", "23456"},
      {"TORCHELASTIC_RUN_ID", "abc"},
      {"TORCHELASTIC_RESTART_COUNT", "0"},
      {"TORCHELASTIC_MAX_RESTARTS", "0"},
      {"OMP_NUM_THREADS", "1"},
      {"PYTHONUNBUFFERED", "1"},
      {"HOME", "/home/me"},
      {"TORCHELASTIC_ERROR_FILE", "/home/me/corro-runs/20260101-000000-train/rank-3.error.json"}};
  for (const auto& [name, value] : wanted) EXPECT_EQ(value_of(rank, name, "(none)"), value) << name;
  for (const auto& [name, value] : rank) EXPECT_THAT(name, Not(HasSubstr("SECRET")));
}

TEST(Environment, KeepsWhatTheUserHasSet) {
  PlanInputs facts = inputs();
  facts.environment["OMP_NUM_THREADS"] = "3";
  facts.environment["MASTER_PORT"] = "1";
  RunOptions options = run({"train.py"}, 2);
  auto plan = make_plan(options, facts);
  EXPECT_EQ(environment_of(*plan, plan->job.seat_of(0)).at("OMP_NUM_THREADS"), "3");
  EXPECT_EQ(environment_of(*plan, plan->job.seat_of(0)).at("MASTER_PORT"), "23456")
      << "left by an earlier job";
  options.env = {"MASTER_PORT=4711", "A=b=c", "HOME"};
  plan = make_plan(options, facts);
  EXPECT_EQ(environment_of(*plan, plan->job.seat_of(0)).at("MASTER_PORT"), "4711") << "asked for";
  EXPECT_EQ(environment_of(*plan, plan->job.seat_of(0)).at("A"), "b=c");
}

TEST(Environment, RefusesVariablesThatMakeNoSense) {
  for (const char* bad : {"=x", "A B=x", "1A=x", "NOT_SET", "CORRO_RANK=3"}) {
    RunOptions options = run({"train.py"});
    options.env = {bad};
    EXPECT_EQ(make_plan(options, inputs()).status().code(), Code::kInvalidArgument) << bad;
  }
}

TEST(Environment, AVariableThatTheEngineWouldRefuseIsRefusedAtOnce) {
  PlanInputs facts = inputs();
  facts.environment["CORRO_TIMEOUT"] = "abc";
  const auto plan = make_plan(run({"train.py"}), facts);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.status().message(),
            "CORRO_TIMEOUT=abc: expected a number of seconds above 0, at most those of a year");
  RunOptions options = run({"train.py"});
  options.env = {"CORRO_TIMEOUT=5", "CORRO_TRANSPORT=udp"};
  EXPECT_EQ(make_plan(options, facts).status().message(),
            "CORRO_TRANSPORT=udp: expected shm or tcp");
  options.env = {"CORRO_TIMEOUT=5", "CORRO_LISTEN=localhost"};
  EXPECT_EQ(make_plan(options, facts).status().message(),
            "CORRO_LISTEN=localhost: expected a numeric address without a port");
  options.env = {"CORRO_TIMEOUT=5", "CORRO_ALGORITHMS=allreduce=fast"};
  EXPECT_THAT(
      make_plan(options, facts).status().message(),
      HasSubstr(
          "CORRO_ALGORITHMS: 'allreduce=fast': expected one of the algorithms of allreduce:"));
  options.env = {"CORRO_TIMEOUT=5"};
  EXPECT_TRUE(make_plan(options, facts).ok());
}

TEST(Environment, ANameThatIsNearlyOneOfOursGetsALine) {
  PlanInputs facts = inputs();
  facts.environment["CORRO_DETERMINSTIC"] = "1";
  facts.environment["CORRO_TIMEOUT"] = "5";
  facts.environment["CORRO_RUN"] = "1";
  facts.environment["CORRO_MY_DATA"] = "x";
  facts.environment["CORR_TIMEOUT"] = "x";
  RunOptions options = run({"train.py"}, 2);
  options.env = {"CORRO_TIMEOT=3"};
  const auto plan = make_plan(options, facts);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(
      plan->misspelt,
      ElementsAre("CORRO_DETERMINSTIC is set, but corro does not know it: did you mean "
                  "CORRO_DETERMINISTIC?",
                  "CORRO_TIMEOT is set, but corro does not know it: did you mean CORRO_TIMEOUT?"));
  EXPECT_THAT(announce_plan(*plan), HasSubstr("corro: CORRO_TIMEOT is set"));
  options.quiet = true;
  EXPECT_EQ(announce_plan(*make_plan(options, facts)), "");
}

TEST(LogDirectory, IsNewForEachJob) {
  PlanInputs facts = inputs();
  facts.files = files({"train.py", "/usr/bin/python3", "corro-runs/20260101-000000-train"});
  EXPECT_EQ(make_plan(run({"train.py"}), facts)->job.log_dir, "corro-runs/20260101-000000-train-2");
}

TEST(DryRun, ShowsHostsRanksBindingsAndVariables) {
  RunOptions options = run({"train.py", "a b"}, 2);
  options.bind = Bind::kCore;
  options.env = {"X=it's"};
  const std::string text = describe_plan(*make_plan(options, inputs()));
  EXPECT_THAT(text, HasSubstr("host node7: 2 ranks\n"));
  EXPECT_THAT(text, HasSubstr("command: /usr/bin/python3 -u train.py 'a b'\n"));
  EXPECT_THAT(text, HasSubstr("  WORLD_SIZE=2\n"));
  EXPECT_THAT(text, HasSubstr("  X='it'\\''s'\n"));
  EXPECT_THAT(text, HasSubstr("rank 1 on node7, processors 1:\n  CORRO_LOCAL_RANK=1\n"));
  EXPECT_THAT(text, Not(HasSubstr("HOME")));
}

TEST(TableServers, AreInThePlanAndItsRanksKnowOfThem) {
  RunOptions options = run({"train.py"}, 2);
  options.servers = 2;
  PlanInputs facts = inputs();
  const std::string program = "/opt/corro/libexec/corro/corro-server";
  EXPECT_THAT(make_plan(options, facts).status().message(),
              HasSubstr("--servers: " + program + " is not there"));
  facts.files = files({"train.py", "/usr/bin/python3", program});
  facts.environment["CORRO_SERVER"] = "7";
  const auto plan = make_plan(options, facts);
  const Variables rank = environment_of(*plan, plan->job.seat_of(0));
  EXPECT_EQ(rank.at("CORRO_SERVERS"), "2");
  EXPECT_FALSE(rank.contains("CORRO_SERVER")) << "of a job that has started this one";
  EXPECT_THAT(describe_plan(*plan),
              HasSubstr("server 1 on node7: " + program +
                        ", log corro-runs/20260101-000000-train/server-1.log\n"));
  EXPECT_FALSE(environment_of(*make_plan(run({"train.py"}, 2), facts), plan->job.seat_of(0))
                   .contains("CORRO_SERVERS"));
}

TEST(TableServers, AreTheRanksWithoutAProgramOfTheirOwn) {
  RunOptions options = run({"train.py"}, 2);
  options.ranks_serve = true;
  const auto plan = make_plan(options, inputs());
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(environment_of(*plan, plan->job.seat_of(1)).at("CORRO_SERVERS"), "ranks");
  EXPECT_THAT(describe_plan(*plan), HasSubstr("servers: the ranks\n"));
  EXPECT_EQ(plan->job.most_servers(), wire::kMostServers) << "agents know them as servers";
  options.least = 1;
  EXPECT_THAT(make_plan(options, inputs()).status().message(),
              StartsWith("--servers: elastic jobs have no table servers"));
}

TEST(TableServers, AreRefusedInOneLineWhereThereAreNone) {
  const auto why = [](int servers, auto change) {
    RunOptions options = run({"train.py"}, 2);
    options.servers = servers;
    PlanInputs facts = inputs();
    change(options, facts);
    const Status status = make_plan(options, facts).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return status.message();
  };
  const auto nothing = [](RunOptions&, PlanInputs&) {};
  EXPECT_EQ(why(-1, nothing), "--servers -1: give 0 to 1024");
  EXPECT_EQ(why(1025, nothing), "--servers 1025: give 0 to 1024");
  EXPECT_THAT(why(1, [](RunOptions& options, PlanInputs&) { options.least = 1; }),
              StartsWith("--servers: elastic jobs have no table servers; leave out"));
  EXPECT_THAT(why(1, [](RunOptions& options, PlanInputs&) { options.discovery = "x"; }),
              StartsWith("--servers: elastic jobs"));
  EXPECT_THAT(why(1, [](RunOptions&,
                        PlanInputs& facts) { facts.dialled = {{.name = "node1", .slots = 2}}; }),
              HasSubstr("jobs of a coordinator"));
}

TEST(ParseShow, ReadsModesAndRanks) {
  EXPECT_EQ(screen::parse_show("all")->mode, screen::ShowMode::kAll);
  EXPECT_EQ(screen::parse_show("errors")->mode, screen::ShowMode::kErrors);
  EXPECT_THAT(screen::parse_show("3,0-1,3")->ranks, ElementsAre(0, 1, 3));
  for (const char* bad : {"", "x", "1,", ",1", "2-1", "-1", "1-", "99999999999"}) {
    EXPECT_FALSE(screen::parse_show(bad).ok()) << bad;
  }
}

/// Of a job whose hosts are discovered.
LaunchPlan discovered(const std::string& hosts, std::optional<int> ranks,
                      std::optional<int> least = std::nullopt) {
  RunOptions options = run({"train.py"}, ranks);
  options.discovery = "./hosts";
  options.least = least;
  PlanInputs facts = inputs();
  facts.discover = [hosts](const std::string& /*command*/, int /*slots*/, Duration /*patience*/) {
    return parse_hosts(hosts);
  };
  return make_plan(options, facts).value();
}

TEST(PlanWithout, PutsTheRanksOnTheOtherHosts) {
  const auto plan = plan_without(discovered("a:2,node7:1,b:2", 3), {{0, "it is not there"}});
  ASSERT_TRUE(plan);
  EXPECT_THAT(plan->put_off, ElementsAre("a"));
  ASSERT_EQ(plan->job.hosts.size(), 2U);
  EXPECT_EQ(plan->job.ranks, 3);
  EXPECT_TRUE(plan->job.hosts[0].own);
  EXPECT_EQ(plan->job.hosts[1].name, "b");
  EXPECT_EQ(plan->job.hosts[1].first_rank, 1);
  EXPECT_EQ(plan->job.hosts[1].ranks, 2);
  EXPECT_EQ(plan->bindings.size(), 2U);
  const auto alone = plan_without(*plan, {{1, "it is not there"}});
  EXPECT_FALSE(alone) << "three ranks are needed";
}

TEST(PlanWithout, BeginsWithFewerRanksIfThoseAreEnough) {
  const auto plan = plan_without(discovered("node7:2,a:2", 4, 1), {{1, "it is not there"}});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->job.ranks, 2);
  EXPECT_EQ(plan->job.places(), 4) << "it grows";
  EXPECT_GE(plan->job.hosts[0].threads, 1);
  EXPECT_FALSE(plan_without(discovered("node7:2,a:2", 4), {{1, ""}}));
}

TEST(PlanWithout, IsForHostsThatMayComeLater) {
  EXPECT_FALSE(plan_without(discovered("node7:2,a:2", 2), {}));
  EXPECT_FALSE(plan_without(discovered("node7:2,a:2", 2), {{0, "its agent was killed"}}));
  EXPECT_FALSE(plan_without(discovered("a:2", 2), {{0, ""}}));
  RunOptions options = run({"train.py"}, 1);
  options.hosts = "node7:1,a:1";
  options.most = 2;
  EXPECT_FALSE(plan_without(*make_plan(options, inputs()), {{1, ""}}));
}

TEST(MakePlan, TakesOptionsOfElasticJobsInThoseAlone) {
  RunOptions options = run({"train.py"}, 2);
  options.elastic_timeout = std::chrono::milliseconds(1500);
  EXPECT_EQ(make_plan(options, inputs()).status().message(),
            "--elastic-timeout: the job is not elastic: add --min-np, --max-np or "
            "--host-discovery");
  options.least = 1;
  const auto plan = make_plan(options, inputs());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->base.at("CORRO_ELASTIC_TIMEOUT"), "1.5") << "ranks wait no longer";
  EXPECT_EQ(plan->base.at("CORRO_TIMEOUT"), "1800") << "who evaluates for minutes does no wrong";
}

TEST(MakePlan, RanksOfElasticJobsWaitLongerThanTheLauncherForOneThatHangs) {
  RunOptions options = run({"train.py"}, 2);
  options.least = 1;
  options.hang_timeout = std::chrono::hours(1);
  EXPECT_EQ(make_plan(options, inputs())->base.at("CORRO_TIMEOUT"), "7200");
  options.env = {"CORRO_TIMEOUT=5"};
  EXPECT_EQ(make_plan(options, inputs())->base.at("CORRO_TIMEOUT"), "5") << "the user's";
  EXPECT_FALSE(make_plan(run({"train.py"}, 2), inputs())->base.contains("CORRO_TIMEOUT"));
}

RunOptions run_on(const std::string& hosts, std::optional<int> ranks = {}) {
  RunOptions options = run({"train.py"}, ranks);
  options.hosts = hosts;
  return options;
}

TEST(SeveralHosts, RanksKnowTheirPlaces) {
  auto plan = make_plan(run_on("node7:2,b:3"), inputs());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->job.ranks, 5);
  ASSERT_EQ(plan->job.hosts.size(), 2U);
  EXPECT_TRUE(plan->job.hosts[0].own);
  EXPECT_FALSE(plan->job.hosts[1].own);
  plan->job.hosts[0].address = "10.0.0.1";
  plan->job.hosts[1].address = "10.0.0.2";
  const Variables last = environment_of(*plan, plan->job.seat_of(4));
  const Variables expected = {
      {"CORRO_RANK", "4"},       {"CORRO_LOCAL_RANK", "2"}, {"CORRO_LOCAL_SIZE", "3"},
      {"CORRO_NODE_RANK", "1"},  {"CORRO_NODES", "2"},      {"CORRO_LISTEN", "10.0.0.2"},
      {"LOCAL_RANK", "2"},       {"LOCAL_WORLD_SIZE", "3"}, {"GROUP_RANK", "1"},
      {"GROUP_WORLD_SIZE", "2"}, {"WORLD_SIZE", "5"},       {"MASTER_ADDR", "10.0.0.1"}};
  const Variables horovods = {{"HOROVOD_RANK", "4"},       {"HOROVOD_SIZE", "5"},
                              {"HOROVOD_LOCAL_RANK", "2"}, {"HOROVOD_LOCAL_SIZE", "3"},
                              {"HOROVOD_CROSS_RANK", "0"}, {"HOROVOD_CROSS_SIZE", "1"},
                              {"HOROVOD_HOSTNAME", "b"}};
  for (const auto& [name, value] : horovods) EXPECT_EQ(value_of(last, name), value) << name;
  EXPECT_EQ(environment_of(*plan, plan->job.seat_of(3)).at("HOROVOD_CROSS_RANK"), "1")
      << "both hosts have two ranks";
  EXPECT_EQ(environment_of(*plan, plan->job.seat_of(3)).at("HOROVOD_CROSS_SIZE"), "2");
  for (const auto& [name, value] : expected) EXPECT_EQ(value_of(last, name), value) << name;
  EXPECT_EQ(environment_of(*plan, plan->job.seat_of(0)).at("CORRO_LISTEN"), "10.0.0.1");
  EXPECT_EQ(environment_of(*plan, plan->job.seat_of(1)).at("LOCAL_RANK"), "1");
}

TEST(SeveralHosts, GetWhatIsNotOfThisHost) {
  PlanInputs facts = inputs();
  facts.environment["SSH_AUTH_SOCK"] = "/tmp/agent";
  facts.environment["DISPLAY"] = ":0";
  facts.environment["LEARNING_RATE"] = "0.1";
  const auto plan = make_plan(run_on("node7,b"), facts);
  EXPECT_EQ(environment_of(*plan, plan->job.seat_of(0)).at("HOME"), "/home/me");
  const Variables other = environment_of(*plan, plan->job.seat_of(1));
  for (const char* name : {"HOME", "SSH_AUTH_SOCK", "DISPLAY", "TORCHELASTIC_ERROR_FILE"})
    EXPECT_FALSE(other.contains(name)) << name;
  EXPECT_EQ(other.at("LEARNING_RATE"), "0.1");
  EXPECT_EQ(other.at("PATH"), "/usr/bin:/bin");
}

TEST(SeveralHosts, AreSettledWhenTheySayWhatTheyHave) {
  auto plan = make_plan(run_on("b:2"), inputs());
  ASSERT_TRUE(plan.ok());
  agent::Machine machine;
  machine.facts.cores = 8;
  ASSERT_TRUE(settle_host(*plan, 0, machine).ok());
  EXPECT_EQ(environment_of(*plan, plan->job.seat_of(0)).at("OMP_NUM_THREADS"), "4");
  plan->options.bind = Bind::kCore;
  EXPECT_EQ(settle_host(*plan, 0, machine).code(), Code::kFailedPrecondition) << "no processors";
}

TEST(SeveralHosts, AMistakeIsOneLine) {
  EXPECT_THAT(make_plan(run_on("a:2,b:2", 5), inputs()).status().message(),
              HasSubstr("the hosts have 4 slots"));
  RunOptions both = run_on("a");
  both.hostfile = "hosts";
  EXPECT_THAT(make_plan(both, inputs()).status().message(), HasSubstr("give one of them"));
  RunOptions file = run({"train.py"});
  file.hostfile = "here";
  PlanInputs facts = inputs();
  facts.read_hostfile = [](const std::string& path) -> Result<std::string> {
    if (path == "gone") return Status(Code::kNotFound, "No such file or directory");
    return std::string("a slots=1\nb slots=x\n");
  };
  EXPECT_THAT(make_plan(file, facts).status().message(), HasSubstr("here:2: "));
  file.hostfile = "gone";
  EXPECT_THAT(make_plan(file, facts).status().message(),
              HasSubstr("--hostfile gone: no such file"));
}

TEST(SeveralHosts, AreAllInADryRun) {
  const std::string text = describe_plan(make_plan(run_on("node7:1,b:2"), inputs()).value());
  EXPECT_THAT(text, HasSubstr("host node7: 1 rank\nhost b: 2 ranks\n"));
  EXPECT_THAT(text, HasSubstr("rank 2 on b, processors any:"));
}

}  // namespace
}  // namespace corro::launch
