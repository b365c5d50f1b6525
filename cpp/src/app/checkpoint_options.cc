#include "app/checkpoint_options.h"

#include <CLI/CLI.hpp>
#include <string>

#include "app/command_line.h"

namespace corro::app {
namespace {

constexpr const char* kCheckpointExamples = R"(
Examples:
  corro checkpoint ls run-7              the checkpoints in a folder, newest first
  corro checkpoint verify run-7          reads them all; status 1 if one is damaged
  corro checkpoint verify run-7 1200     reads the one of step 1200
  corro checkpoint show run-7            tensors of the newest one, and what else it holds
  corro checkpoint show run-7 --json
)";

CLI::App& add_action(CLI::App& app, CheckpointCommand& command, const std::string& name,
                     const std::string& what) {
  CLI::App& action = *app.add_subcommand(name, what);
  action.add_option("folder", command.folder, "Where the job writes its checkpoints")
      ->type_name("FOLDER")
      ->required();
  action.callback([&command, name] { command.action = name; });
  return action;
}

void add_step(CLI::App& action, CheckpointCommand& command, const std::string& otherwise) {
  action.add_option("step", command.step, "Of which step; default: " + otherwise)
      ->type_name("STEP");
}

}  // namespace

Result<CheckpointRequest> parse_checkpoint_line(const std::vector<std::string>& arguments) {
  CLI::App program("corro looks at checkpoints.", "corro");
  program.require_subcommand(1);
  CheckpointRequest request;
  describe_checkpoint(program, request.command);
  CORRO_ASSIGN(auto help, parse_words(program, arguments));
  request.text = std::move(help).value_or("");
  return request;
}

void describe_checkpoint(CLI::App& program, CheckpointCommand& command) {
  CLI::App& app = *program.add_subcommand("checkpoint", "List, verify and show checkpoints");
  app.footer(kCheckpointExamples);
  app.require_subcommand(1);
  CLI::App& list = add_action(app, command, "ls", "List checkpoints, newest first");
  CLI::App& verify = add_action(app, command, "verify", "Read every byte of checkpoints");
  CLI::App& show = add_action(app, command, "show", "Show what a checkpoint holds");
  add_step(verify, command, "all");
  add_step(show, command, "the newest");
  for (CLI::App* action : {&list, &show}) action->add_flag("--json", command.json, "Print JSON");
}

}  // namespace corro::app
