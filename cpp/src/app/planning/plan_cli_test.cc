#include "app/planning/plan_cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "app/cli.h"

namespace corro::app {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

Result<PlanRequest> parse_planning(const std::vector<std::string>& arguments) {
  return parse_plan_line(arguments);
}

/// What `corro` itself says, which does not carry out these commands but knows them.
Result<Request> parse_program(const std::vector<std::string>& arguments) {
  return parse_command_line(arguments, "1.2.3");
}

PlanCommand parsed(const std::vector<std::string>& arguments) {
  const auto request = parse_planning(arguments);
  EXPECT_TRUE(request.ok()) << request.status().message();
  if (!request.ok()) return {};
  EXPECT_EQ(request->text, "");
  return request->command;
}

TEST(PlanCommandLine, ReadsWhatIsAskedAndWhatIsPinned) {
  const PlanCommand command = parsed({"plan",
                                      "--model",
                                      "gpt3-175b",
                                      "--cluster=c.yaml",
                                      "--samples",
                                      "1e9",
                                      "--bytes-per-sample",
                                      "16 KiB",
                                      "--objective",
                                      "cost",
                                      "--trainer",
                                      "megatron",
                                      "--global-batch",
                                      "1536",
                                      "--memory-limit",
                                      "70 GiB",
                                      "--sequence",
                                      "4096",
                                      "--params",
                                      "params.json",
                                      "--tp",
                                      "8",
                                      "--cp",
                                      "2",
                                      "--ep",
                                      "4",
                                      "--dp",
                                      "3",
                                      "--pp",
                                      "16",
                                      "--micro-batch",
                                      "5",
                                      "--interleave",
                                      "6",
                                      "--zero",
                                      "0",
                                      "--sequence-parallel",
                                      "on",
                                      "--recompute",
                                      "attention",
                                      "--schedule",
                                      "zero_bubble",
                                      "--overlap",
                                      "off",
                                      "--profile",
                                      "profile.json",
                                      "--offload",
                                      "weights",
                                      "--dtype",
                                      "f16",
                                      "--gradient-dtype",
                                      "f16",
                                      "--explain",
                                      "--json",
                                      "-",
                                      "--svg",
                                      "a.svg",
                                      "--html",
                                      "a.html"});
  EXPECT_EQ(command.action, PlanAction::kPlan);
  const PlanQuestion& question = command.question;
  EXPECT_EQ(question.model, "gpt3-175b");
  EXPECT_EQ(question.cluster, "c.yaml");
  EXPECT_EQ(question.params, "params.json");
  EXPECT_EQ(question.samples, 1e9);
  EXPECT_EQ(question.bytes_per_sample, 16384);
  EXPECT_EQ(question.objective, plan::Objective::kCost);
  EXPECT_EQ(question.trainer, plan::Trainer::kMegatron);
  EXPECT_EQ(question.global_batch, 1536U);
  EXPECT_EQ(question.memory_limit, 70.0 * (1U << 30U));
  EXPECT_EQ(question.sequence, 4096U);
  const plan::Pins& pins = question.pins;
  EXPECT_THAT((std::vector{pins.tensor, pins.context, pins.expert, pins.data, pins.pipeline,
                           pins.micro_batch, pins.chunks, pins.zero}),
              ElementsAre(8U, 2U, 4U, 3U, 16U, 5U, 6U, 0U));
  EXPECT_EQ(pins.sequence_parallel, true);
  EXPECT_EQ(pins.recompute, plan::Recompute::kAttention);
  EXPECT_EQ(pins.schedule, plan::Schedule::kZeroBubble);
  EXPECT_EQ(pins.offload, plan::Offload::kWeights);
  EXPECT_EQ(pins.overlap, false);
  EXPECT_EQ(question.profile, "profile.json");
  EXPECT_EQ(pins.dtype, DType::kF16);
  EXPECT_EQ(pins.gradient_dtype, DType::kF16);
  EXPECT_TRUE(command.explain);
  EXPECT_THAT((std::vector{command.json, command.svg, command.html}),
              ElementsAre("-", "a.svg", "a.html"));
}

TEST(PlanCommandLine, WhatIsNotGivenIsThePlannersToDecide) {
  const PlanQuestion question = parsed({"plan", "--model", "m", "--cluster", "c"}).question;
  EXPECT_EQ(question.memory_limit, 0);
  EXPECT_EQ(question.global_batch, 0U);
  EXPECT_EQ(question.objective, plan::Objective::kTime);
  EXPECT_FALSE(question.pins.tensor || question.pins.zero || question.pins.recompute ||
               question.pins.offload || question.pins.dtype);
}

TEST(PlanCommandLine, KnowsTheOtherCommands) {
  PlanCommand command = parsed({"plan", "fit", "runs.csv", "-o", "params.json"});
  EXPECT_EQ(command.action, PlanAction::kFit);
  EXPECT_THAT(command.files, ElementsAre("runs.csv"));
  EXPECT_EQ(command.output, "params.json");
  command = parsed({"plan", "predict", "--params", "p.json", "runs.csv", "--cluster", "c.yaml"});
  EXPECT_EQ(command.action, PlanAction::kPredict);
  EXPECT_EQ(command.question.params, "p.json");
  EXPECT_EQ(command.question.cluster, "c.yaml");
  command = parsed({"plan", "compare", "a.json", "b.json"});
  EXPECT_EQ(command.action, PlanAction::kCompare);
  EXPECT_THAT(command.files, ElementsAre("a.json", "b.json"));
  command = parsed({"plan", "export", "a.json"});
  EXPECT_EQ(command.action, PlanAction::kExport);
  EXPECT_EQ(command.target, "corro");
  EXPECT_EQ(parsed({"plan", "export", "a.json", "--to", "megatron"}).target, "megatron");
  command = parsed({"probe", "-H", "node1,node2", "-o", "c.yaml"});
  EXPECT_EQ(command.action, PlanAction::kProbe);
  EXPECT_EQ(command.hosts.hosts, "node1,node2");
  EXPECT_EQ(command.output, "c.yaml");
}

TEST(PlanCommandLine, AnInstanceMayHaveItsNumbersReplaced) {
  const plan::PartitionRequest request =
      parsed({"plan", "partition", "x.json", "--devices", "64", "--micro-batches=32", "--memory",
              "40e9", "--bandwidth", "25e9"})
          .partition;
  EXPECT_EQ(request.file, "x.json");
  EXPECT_EQ(request.options.devices, 64U);
  EXPECT_EQ(request.options.micro_batches, 32U);
  EXPECT_EQ(request.options.memory_bytes, 40e9);
  EXPECT_EQ(request.options.bandwidth, 25e9);
}

TEST(PlanCommandLine, SeveralHostsMayBeRemoved) {
  const PlanCommand command = parsed({"plan", "whatif", "--remove", "node3", "--model", "m",
                                      "--cluster", "c", "--remove", "node4,node5", "--tp", "2"});
  EXPECT_EQ(command.action, PlanAction::kWhatif);
  EXPECT_THAT(command.removed, ElementsAre("node3", "node4", "node5"));
  EXPECT_EQ(command.question.pins.tensor, 2U);
}

TEST(PlanCommandLine, MistakesAreOneLineThatNamesTheOption) {
  const std::pair<std::vector<std::string>, std::string> mistakes[] = {
      {{"plan"}, "corro plan: --model: is missing"},
      {{"plan", "--model", "m"}, "corro plan: --cluster: is missing"},
      {{"plan", "--model", "", "--cluster", "c"}, "corro plan: --model: must not be empty"},
      {{"plan", "--tp", "0"}, "corro plan: --tp: must be an integer from 1 to 1048576, not \"0\""},
      {{"plan", "--tp", "2 s"}, "corro plan: --tp: "},
      {{"plan", "--tp", "-1"}, "corro plan: --tp: "},
      {{"plan", "--tp", "1.5"}, "corro plan: --tp: "},
      {{"plan", "--tp", ""}, "corro plan: --tp: "},
      {{"plan", "--tp", "99999999999999999999"}, "corro plan: --tp: "},
      {{"plan", "--zero", "4"}, "corro plan: --zero: must be an integer from 0 to 3"},
      {{"plan", "--samples", "nan"}, "corro plan: --samples: "},
      {{"plan", "--samples", "inf"}, "corro plan: --samples: "},
      {{"plan", "--bytes-per-sample", "16 KiB/s"},
       "corro plan: --bytes-per-sample: must be an amount of bytes such as \"80 GiB\", not "},
      {{"plan", "--samples", "1e9x"}, "corro plan: --samples: "},
      {{"plan", "--samples", "-5"}, "corro plan: --samples: "},
      {{"plan", "--memory-limit", "70 Gib/s"}, "corro plan: --memory-limit: must be an amount"},
      {{"plan", "--memory-limit", "-1"}, "corro plan: --memory-limit: "},
      {{"plan", "--objective", "speed"}, "corro plan: --objective: "},
      {{"plan", "--recompute", "some"}, "corro plan: --recompute: "},
      {{"plan", "--offload", "maybe"}, "corro plan: --offload: "},
      {{"plan", "--dtype", "f99"}, "corro plan: --dtype: "},
      {{"plan", "--json", ""}, "corro plan: --json: must not be empty"},
      {{"plan", "--wrong"}, "corro plan: unknown option --wrong; see corro plan --help"},
      {{"plan", "--model", "m", "--seq", "4096"},
       "corro plan: unknown option --seq; did you mean --sequence? see corro plan --help"},
      {{"plan", "whatif", "--remov=a"}, "corro plan whatif: unknown option --remov; did you mean "},
      {{"plan", "fit"}, "corro plan fit: "},
      {{"plan", "fit", "a", "b"}, "corro plan fit: "},
      {{"plan", "fit", "--tp", "8", "a"}, "corro plan fit: "},
      {{"plan", "--tp", "8", "fit", "a"}, "corro plan fit: --tp: is an option of corro plan"},
      {{"plan", "partition", "a", "--devices", "x"}, "corro plan partition: --devices: "},
      {{"plan", "compare", "a"}, "corro plan compare: "},
      {{"plan", "export", "a", "--to", "x"}, "corro plan export: --to: "},
      {{"plan", "whatif", "--model", "m", "--cluster", "c"}, "corro plan whatif: --remove: "},
      {{"plan", "guess"}, "corro plan: "},
      {{"probe", "x"}, "corro probe: unexpected argument x; see corro probe --help"},
      {{"probe", "-H", ""}, "corro probe: --hosts: no host"},
  };
  for (const auto& [arguments, said] : mistakes) {
    std::vector<std::string> words = arguments;
    const bool needs_files =
        words.size() == 3 && words[1].starts_with("--") && words[1] != "--model";
    if (needs_files) words.insert(words.end(), {"--model", "m", "--cluster", "c"});
    const auto request = parse_planning(words);
    ASSERT_FALSE(request.ok()) << said;
    EXPECT_EQ(request.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(request.status().message(), StartsWith(said));
    EXPECT_THAT(request.status().message(), Not(HasSubstr("\n")));
  }
}

TEST(PlanCommandLine, HelpHasExamples) {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"plan"},
                                                  {"plan", "fit"},
                                                  {"plan", "predict"},
                                                  {"plan", "partition"},
                                                  {"plan", "compare"},
                                                  {"plan", "whatif"},
                                                  {"plan", "export"},
                                                  {"plan", "tables"},
                                                  {"probe"}}) {
    std::vector<std::string> words = command;
    words.emplace_back("--help");
    std::vector<std::string> help = {"help"};
    help.insert(help.end(), command.begin(), command.end());
    EXPECT_THAT(parse_planning(words)->text, HasSubstr("Example")) << command.back();
    EXPECT_EQ(parse_planning(words)->text, parse_program(help)->text);
  }
  EXPECT_THAT(parse_program({"help", "plan", "fits"}).status().message(),
              HasSubstr("no command 'fits'"));
}

TEST(PlanCommandLine, CompletionKnowsTheCommandsOfPlan) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string text = parse_program({"completion", shell})->text;
    for (const char* word : {"probe", "whatif", "predict", "partition", "micro-batch", "remove",
                             "samples_per_price", "attention"}) {
      EXPECT_THAT(text, HasSubstr(word)) << shell;
    }
  }
}

}  // namespace
}  // namespace corro::app
