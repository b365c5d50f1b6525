#include "app/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/operator_options.h"

namespace corro::app {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Result<Request> parse(const std::vector<std::string>& arguments) {
  return parse_command_line(arguments, "1.2.3");
}

TEST(CommandLine, SplitsTheLaunchersOptionsFromTheProgramsArguments) {
  const auto request =
      parse({"run", "-np", "4", "--show", "all", "train.py", "-np", "8", "--show"});
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ(request->action, Action::kRun);
  EXPECT_EQ(request->run.ranks, 4);
  EXPECT_EQ(request->run.show.mode, screen::ShowMode::kAll);
  EXPECT_THAT(request->run.command, ElementsAre("train.py", "-np", "8", "--show"));
}

TEST(CommandLine, RemembersItsOwnOptionsBehindTheProgram) {
  const auto misplaced = [](const std::vector<std::string>& arguments) {
    std::vector<std::string> words;
    const auto request = parse(arguments);
    for (const auto& option : request->run.misplaced) {
      words.push_back(option.name + "|" + option.words + (option.is_ranks ? "|ranks" : ""));
    }
    return words;
  };
  EXPECT_THAT(misplaced({"run", "-np", "4", "x.py", "-np", "2", "--lr", "1", "--show=all"}),
              ElementsAre("-np|-np 2|ranks", "--show|--show=all"));
  EXPECT_THAT(misplaced({"run", "x.py", "-np4", "--nproc_per_node=2", "--verbose", "-n"}),
              ElementsAre("-np4|-np4|ranks", "--nproc_per_node|--nproc_per_node=2|ranks",
                          "--verbose|--verbose", "-n|-n|ranks"));
  EXPECT_THAT(misplaced({"run", "x.py", "-npz", "file"}), ElementsAre());
  EXPECT_THAT(misplaced({"run", "x.py", "--help", "np", "--", "-np", "2"}), ElementsAre());
}

TEST(CommandLine, TwoDashesEndTheOptions) {
  EXPECT_THAT(parse({"run", "-n", "2", "--", "--odd-name", "--"})->run.command,
              ElementsAre("--odd-name", "--"));
  EXPECT_THAT(parse({"run", "x", "--", "y"})->run.command, ElementsAre("x", "--", "y"));
}

TEST(CommandLine, UnderstandsEverySpellingOfTheNumberOfRanks) {
  for (const std::vector<std::string>& spelling : {std::vector<std::string>{"-np", "3"},
                                                   {"-np3"},
                                                   {"-np=3"},
                                                   {"-n", "3"},
                                                   {"-n3"},
                                                   {"--np=3"},
                                                   {"--np", "3"},
                                                   {"--nproc-per-node", "3"},
                                                   {"--nproc_per_node=3"}}) {
    std::vector<std::string> arguments = {"run"};
    arguments.insert(arguments.end(), spelling.begin(), spelling.end());
    arguments.insert(arguments.end(), {"--quiet", "x.py"});
    const auto request = parse(arguments);
    ASSERT_TRUE(request.ok()) << spelling[0] << ": " << request.status().message();
    EXPECT_EQ(request->run.ranks, 3) << spelling[0];
    EXPECT_THAT(request->run.command, ElementsAre("x.py")) << spelling[0];
  }
}

TEST(CommandLine, SaysWhereTheNumberOfRanksIsMissing) {
  const auto said = [](const std::vector<std::string>& arguments) {
    return parse(arguments).status().message();
  };
  EXPECT_EQ(said({"run", "-np", "x.py"}),
            "corro run: -np x.py: expected a number of ranks, as in: corro run -np 2 x.py");
  for (const char* bad : {"4x", "1.5", "x", "99999999999"}) {
    EXPECT_THAT(said({"run", std::string("-np=") + bad, "y.py"}),
                HasSubstr("-np " + std::string(bad) + ": expected a number"));
  }
  EXPECT_THAT(said({"run", "-np4x", "y.py"}), HasSubstr("-np 4x: expected a number"));
  EXPECT_EQ(said({"run", "-npernode", "2", "y.py"}),
            "corro run: unknown option -npernode; the number of ranks is -np N");
  EXPECT_THAT(said({"run", "-np", "", "y.py"}), HasSubstr("-np '': expected a number"));
  EXPECT_THAT(said({"run", "-np"}), testing::StartsWith("corro run: -np: "));
}

TEST(CommandLine, AsksAboutACommandThatIsNearlyOne) {
  EXPECT_EQ(parse({"rum", "x.py"}).status().message(),
            "corro: no command 'rum'; did you mean corro run? to start a program: corro run rum");
  EXPECT_THAT(parse({"./run"}).status().message(), Not(HasSubstr("did you mean")));
  EXPECT_THAT(parse({"x.py"}).status().message(), HasSubstr("corro run x.py"));
}

TEST(CommandLine, LeavesTheNumberOfRanksOpenIfItIsNotGiven) {
  EXPECT_FALSE(parse({"run", "x.py"})->run.ranks);
}

TEST(CommandLine, ReadsWhereTheJobIsShown) {
  EXPECT_EQ(parse({"run", "x"})->run.dashboard, "");
  EXPECT_EQ(parse({"run", "--dashboard", "127.0.0.1:0", "x"})->run.dashboard, "127.0.0.1:0");
  EXPECT_THAT(parse({"run", "--dashboard", "", "x"}).status().message(),
              HasSubstr("no address; give one, such as 127.0.0.1:0"));
  EXPECT_THAT(
      parse({"run", "--on", "kubernetes", "--dashboard", "127.0.0.1:0", "x"}).status().message(),
      HasSubstr("--dashboard means nothing with --on kubernetes"));
}

TEST(CommandLine, ReadsTimes) {
  using std::chrono::milliseconds;
  EXPECT_EQ(parse({"run", "--timeout", "90", "x"})->run.timeout, milliseconds(90'000));
  EXPECT_EQ(parse({"run", "--timeout", "1.5m", "x"})->run.timeout, milliseconds(90'000));
  EXPECT_EQ(parse({"run", "--timeout=2h", "x"})->run.timeout, milliseconds(7'200'000));
  EXPECT_FALSE(parse({"run", "x"})->run.timeout);
  EXPECT_EQ(parse({"run", "--long-wait", "0", "x"})->run.long_wait, milliseconds(0));
  EXPECT_EQ(parse({"run", "--long-wait", "1m", "x"})->run.long_wait, milliseconds(60'000));
  EXPECT_FALSE(parse({"run", "x"})->run.long_wait);
  EXPECT_FALSE(parse({"run", "--long-wait", "often", "x"}).ok());
  for (const char* bad : {"", "x", "5d", "-1", "1e99", "5 s", "nan"}) {
    EXPECT_FALSE(parse({"run", "--timeout", bad, "x"}).ok()) << bad;
  }
}

TEST(CommandLine, ReadsHowAnElasticJobWaits) {
  const auto request = parse({"run", "--elastic-timeout", "90", "--reset-limit", "0", "--back-off",
                              "0.5,2m", "--replace-wait", "5", "x"});
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ(request->run.elastic_timeout, std::chrono::seconds(90));
  EXPECT_EQ(request->run.replace_wait, std::chrono::seconds(5));
  EXPECT_EQ(request->run.reset_limit, 0);
  EXPECT_EQ(request->run.back_off,
            std::pair(Duration(std::chrono::milliseconds(500)), Duration(std::chrono::minutes(2))));
  for (const char* bad : {"", "1", "1,", "2,1", "1,2,3", "-1,2"})
    EXPECT_FALSE(parse({"run", "--back-off", bad, "x"}).ok()) << bad;
}

TEST(CommandLine, ANumberThatIsTooSmallOrTooLargeIsToldItsBounds) {
  EXPECT_EQ(parse({"run", "--reset-limit", "-1", "x"}).status().message(),
            "corro run: --reset-limit: give 0 or more, not -1; see corro run --help");
  EXPECT_THAT(parse({"run", "--reset-limit", "few", "x"}).status().message(),
              HasSubstr("give 0 or more, not few"));
  EXPECT_THAT(parse({"run", "--fan-out", "1025", "x"}).status().message(),
              HasSubstr("--fan-out: give 1 to 1024, not 1025"));
  EXPECT_THAT(parse_operator_line({"operator", "--kube-api-qps", "0"}).status().message(),
              HasSubstr("--kube-api-qps: give 0.1 to 100000, not 0;"));
}

TEST(CommandLine, TimesAreForLinesWithAPrefix) {
  for (const char* show : {"all", "streams", "0,3", "1"})
    EXPECT_TRUE(parse({"run", "--timestamps", "--show", show, "x"})->run.show.timestamps) << show;
  EXPECT_FALSE(parse({"run", "--show", "all", "x"})->run.show.timestamps);
  EXPECT_THAT(parse({"run", "--timestamps", "x"}).status().message(), HasSubstr("add --show all"));
}

TEST(CommandLine, CollectsVariables) {
  const auto request = parse({"run", "--env", "A=1", "--env", "B", "--env=C=2", "x", "--env", "D"});
  ASSERT_TRUE(request.ok());
  EXPECT_THAT(request->run.env, ElementsAre("A=1", "B", "C=2"));
  EXPECT_THAT(request->run.command, ElementsAre("x", "--env", "D"));
}

TEST(CommandLine, ToolsThatGetValuesAreAVariableOfTheRanks) {
  const auto request = parse({"run", "--log-to", "tensorboard:a,mlflow", "--env", "B=1", "x"});
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_THAT(request->run.env, ElementsAre("B=1", "CORRO_LOG_TO=tensorboard:a,mlflow"));
  const auto refused = parse({"run", "--log-to", "mlflow,tensorbord:a", "x"});
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("give some of tensorboard[:FOLDER]"));
}

TEST(CommandLine, MistakesAreOneLineThatNamesTheCommand) {
  const std::vector<std::vector<std::string>> mistakes = {
      {"run", "--wrong", "x"},
      {"run", "-np", "x", "y"},
      {"run", "-np"},
      {"run", "--show", "x"},
      {"run", "-H", "", "x"},
      {"run", "--bind", "x", "y"},
      {"run", "--timestamps", "x"},
      {"doctor", "x"},
      {"servers"},
      {"servers", "--add", "0"},
      {"servers", "--add", "1", "--remove", "0"},
      {"completion"},
      {"completion", "tcsh"},
      {"version", "x"},
      {"--wrong"},
      {"trian.py"},
      {"help", "x"}};
  for (const auto& arguments : mistakes) {
    const auto request = parse(arguments);
    ASSERT_FALSE(request.ok()) << arguments[0];
    EXPECT_THAT(request.status().message(), testing::StartsWith("corro")) << arguments[0];
    EXPECT_THAT(request.status().message(), Not(HasSubstr("\n")));
  }
}

TEST(CommandLine, AProgramWithoutRunGetsAHint) {
  EXPECT_THAT(parse({"train.py"}).status().message(), HasSubstr("corro run train.py"));
}

TEST(CommandLine, PrintsHelpAndVersion) {
  for (const std::vector<std::string>& help :
       {std::vector<std::string>{}, {"help"}, {"--help"}, {"-h"}}) {
    EXPECT_THAT(parse(help)->text, HasSubstr("doctor"));
  }
  for (const std::vector<std::string>& help :
       {std::vector<std::string>{"run", "--help"}, {"help", "run"}, {"run", "-np", "2", "-h"}}) {
    EXPECT_THAT(parse(help)->text, HasSubstr("--allow-single-node"));
  }
  EXPECT_EQ(parse({"run", "x.py", "--help"})->action, Action::kRun) << "the program's own --help";
  EXPECT_EQ(parse({"version"})->text, "corro 1.2.3\n");
  EXPECT_EQ(parse({"--version"})->text, "corro 1.2.3\n");
}

TEST(CommandLine, ReadsDoctorsArguments) {
  const auto request = parse({"doctor", "--json", "12", "34"});
  EXPECT_EQ(request->action, Action::kDoctor);
  EXPECT_TRUE(request->doctor_json);
  EXPECT_FALSE(request->doctor_metrics);
  EXPECT_THAT(request->doctor_pids, ElementsAre(12, 34));
  EXPECT_TRUE(parse({"doctor", "--metrics"})->doctor_metrics);
}

TEST(CommandLine, TheDoctorTriesFrameworksAndNothingElse) {
  EXPECT_EQ(parse({"doctor", "--frameworks"})->action, Action::kFrameworks);
  for (const auto& mistake : std::vector<std::vector<std::string>>{
           {"doctor", "--frameworks", "12"},
           {"doctor", "--frameworks", "--json"},
           {"doctor", "--metrics", "--frameworks"},
           {"doctor", "--frameworks", "-H", "a"},
       }) {
    EXPECT_THAT(parse(mistake).status().message(), HasSubstr("--frameworks"));
  }
}

TEST(CommandLine, TheDoctorTakesHostsInPlaceOfProcesses) {
  const auto request =
      parse({"doctor", "-H", "a:4,b", "--rsh", "rsh -q", "--network", "10.0.0.0/8", "--json"});
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ(request->action, Action::kPreflight);
  EXPECT_EQ(request->preflight.hosts, "a:4,b");
  EXPECT_EQ(request->preflight.rsh, "rsh -q");
  EXPECT_EQ(request->preflight.network, "10.0.0.0/8");
  EXPECT_TRUE(request->doctor_json);
  EXPECT_EQ(parse({"doctor", "--hostfile", "f"})->preflight.hostfile, "f");
  for (const auto& mistake :
       std::vector<std::vector<std::string>>{{"doctor", "--metrics", "--json"},
                                             {"doctor", "--metrics", "-H", "a"},
                                             {"doctor", "--metrics", "--hostfile", "f"},
                                             {"doctor", "-H", "a", "12"},
                                             {"doctor", "--rsh", "rsh"},
                                             {"doctor", "-H", ""},
                                             {"doctor", "--network", "x"}}) {
    EXPECT_THAT(parse(mistake).status().message(), HasSubstr("corro doctor: "));
  }
}

TEST(CommandLine, StacksTakesAJobOrNone) {
  EXPECT_EQ(parse({"stacks"})->action, Action::kStacks);
  EXPECT_EQ(parse({"stacks", "4711"})->look.job, "4711");
  EXPECT_FALSE(parse({"stacks", "1", "2"}).ok());
}

TEST(CommandLine, ATraceHasStepsAndAFile) {
  const auto request = parse({"trace", "4711", "--steps", "3", "-o", "a.json"});
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ(request->action, Action::kTrace);
  EXPECT_EQ(request->look.job, "4711");
  EXPECT_EQ(request->look.steps, 3U);
  EXPECT_EQ(request->look.output, "a.json");
  EXPECT_EQ(parse({"trace"})->look.steps, 1U);
  EXPECT_FALSE(parse({"trace", "--steps", "0"}).ok());
}

TEST(CommandLine, DashTakesAFolderAndAnAddress) {
  EXPECT_EQ(parse({"dash"})->action, Action::kDash);
  EXPECT_EQ(parse({"dash"})->dash.path, "") << "the job that runs";
  EXPECT_EQ(parse({"dash", "logs"})->action, Action::kDash);
  EXPECT_EQ(parse({"dash", "logs"})->dash.path, "logs");
  EXPECT_EQ(parse({"dash", "logs"})->dash.address, "127.0.0.1:0");
  EXPECT_EQ(parse({"dash", "--address", "[::1]:80", "logs"})->dash.address, "[::1]:80");
  for (const std::vector<std::string>& mistake :
       {std::vector<std::string>{"dash", "a", "b"}, {"dash", "--address", "", "logs"}})
    EXPECT_THAT(parse(mistake).status().message(), HasSubstr("corro dash: "));
}

TEST(CommandLine, StatusAndTopTakeAJobOrNone) {
  EXPECT_EQ(parse({"status"})->action, Action::kStatus);
  EXPECT_EQ(parse({"servers", "--add", "2"})->look.add, 2U);
  EXPECT_EQ(parse({"servers", "4711", "--remove", "0"})->look.remove, 0U);
  EXPECT_EQ(parse({"status", "4711"})->look.job, "4711");
  EXPECT_FALSE(parse({"status"})->look.json);
  EXPECT_TRUE(parse({"status", "--json", "4711"})->look.json);
  EXPECT_EQ(parse({"top", "4711"})->action, Action::kTop);
  EXPECT_EQ(parse({"top", "4711"})->look.job, "4711");
  EXPECT_THAT(parse({"top", "--json"}).status().message(), HasSubstr("corro top: "));
}

TEST(Completion, KnowsEveryCommandAndOption) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string text = parse({"completion", shell})->text;
    for (const char* word : {"run", "doctor", "stacks", "status", "top", "dash", "address",
                             "completion", "version", "help", "show", "log-dir", "output-dir",
                             "timestamps", "timeout", "allow-single-node", "json"}) {
      EXPECT_THAT(text, HasSubstr(word)) << shell;
    }
    EXPECT_THAT(text, Not(HasSubstr("corro-call"))) << shell;
  }
}

TEST(CommandLine, AnEmptyValueIsNotTheNextWord) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"operator",
                                 "--gang-scheduling=", "--cluster-domain=", "--workers=3"},
        {"operator", "--gang-scheduling", "", "--cluster-domain", "", "--workers=3"}}) {
    const auto request = parse_operator_line(words);
    ASSERT_TRUE(request.ok()) << request.status().message();
    EXPECT_EQ(request->command.gang_scheduler, "");
    EXPECT_EQ(request->command.cluster_domain, "");
    EXPECT_EQ(request->command.workers, 3);
  }
}

TEST(CommandLine, ArgumentsOfSubprogramsAreNotLookedAt) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"plan", "--no-such-option"}, {"probe", "-np", "2"}}) {
    const auto request = parse(words);
    ASSERT_TRUE(request.ok()) << request.status().message();
    EXPECT_EQ(request->action, Action::kSubprogram);
    EXPECT_EQ(request->subprogram, "corro-plan");
  }
  EXPECT_EQ(parse({"operator"})->subprogram, "corro-operator");
  EXPECT_EQ(parse({"checkpoint", "ls"})->subprogram, "corro-checkpoint");
  EXPECT_EQ(parse({"agent", "--coordinator", "127.0.0.1:1"})->subprogram, "corro-coordinator");
  EXPECT_EQ(parse({"agent"})->action, Action::kAgent) << "one that corro run has started";
  EXPECT_THAT(parse({"agent", "--help"})->text, HasSubstr("--coordinator"));
}

TEST(CommandLine, TableServersAreAnOptionAndNoCommandToType) {
  EXPECT_EQ(parse({"run", "--servers", "2", "train.py"})->run.servers, 2);
  EXPECT_EQ(parse({"run", "train.py", "--servers", "2"})->run.servers, 0) << "the program's own";
  EXPECT_FALSE(parse({"run", "--servers", "2", "train.py"})->run.ranks_serve);
  const auto ranks = parse({"run", "--servers", "ranks", "train.py"});
  EXPECT_TRUE(ranks->run.ranks_serve);
  EXPECT_EQ(ranks->run.servers, 0);
  EXPECT_EQ(parse({"run", "--servers", "few", "train.py"}).status().message(),
            "corro run: --servers few: give a number of table servers, or \"ranks\"");
  EXPECT_EQ(parse({"server"})->subprogram, "corro-server");
  EXPECT_THAT(parse({"help"})->text, Not(HasSubstr("\n  server ")));
  EXPECT_THAT(parse({"help", "server"})->text, HasSubstr("corro run --servers"));
  EXPECT_THAT(
      parse_coordinator_line({"coordinator", "--servers", "2", "train.py"}).status().message(),
      HasSubstr("unknown option --servers"));
}

TEST(CommandLine, ACoordinatorTakesAJobAsRunDoesButNoHosts) {
  const auto line = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"coordinator", "--store", "s", "--listen", "127.0.0.1:1"});
    return parse_coordinator_line(words);
  };
  const auto request = line({"-np", "4", "--min-np", "2", "train.py", "-np", "3"});
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ(request->coordinator.store, "s");
  EXPECT_EQ(request->run.ranks, 4);
  EXPECT_EQ(request->run.least, 2);
  EXPECT_EQ(request->run.command, (std::vector<std::string>{"train.py", "-np", "3"}));
  EXPECT_THAT(line({"train.py"}).status().message(), HasSubstr("give -np"));
  EXPECT_THAT(line({"-np", "4", "-H", "a", "train.py"}).status().message(), HasSubstr("-H"));
  EXPECT_THAT(line({"--help"})->text, HasSubstr("Usage: corro coordinator [options]"));
}

TEST(CommandLine, AnAgentHasSeveralCoordinators) {
  const auto request = parse_coordinator_line(
      {"agent", "--coordinator", "a:1,b:2", "--slots", "3", "--host", "node1", "--patience", "2m"});
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ(request->agent.addresses, (std::vector<std::string>{"a:1", "b:2"}));
  EXPECT_EQ(request->agent.slots, 3);
  EXPECT_EQ(request->agent.host, "node1");
  EXPECT_EQ(request->agent.patience, Duration(std::chrono::minutes(2)));
  EXPECT_THAT(parse_coordinator_line({"agent", "--patience", "soon"}).status().message(),
              HasSubstr("--coordinator"));
}

}  // namespace
}  // namespace corro::app
