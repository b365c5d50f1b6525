#include "launch/worker_env.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace corro::launch {
namespace {

bool is_name(std::string_view text) {
  if (text.empty() || (text[0] >= '0' && text[0] <= '9')) return false;
  return text.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") ==
         std::string_view::npos;
}

constexpr std::array kReserved = {"CORRO_RUN",        "CORRO_RANK",       "CORRO_SIZE",
                                  "CORRO_LOCAL_RANK", "CORRO_LOCAL_SIZE", "CORRO_NODE_RANK",
                                  "CORRO_NODES",      "CORRO_JOB_ID",     "CORRO_AGENT"};

void add_torchrun_names(const JobFacts& job, int rank, Variables& variables) {
  const std::string ranks = std::to_string(job.ranks);
  for (const char* name : {"RANK", "LOCAL_RANK", "ROLE_RANK"}) {
    variables[name] = std::to_string(rank);
  }
  for (const char* name : {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"}) {
    variables[name] = ranks;
  }
  variables["GROUP_RANK"] = "0";
  variables["GROUP_WORLD_SIZE"] = "1";
  variables["ROLE_NAME"] = "default";
  variables["MASTER_ADDR"] = "127.0.0.1";
  variables["MASTER_PORT"] = std::to_string(job.master_port);
  variables["TORCHELASTIC_RUN_ID"] = job.job_id;
  variables["TORCHELASTIC_RESTART_COUNT"] = "0";
  variables["TORCHELASTIC_MAX_RESTARTS"] = "0";
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";  // rank 0 opens the store at MASTER_PORT
  variables["TORCHELASTIC_ERROR_FILE"] = fmt::format("{}/rank-{}.error.json", job.error_dir, rank);
}

}  // namespace

Result<Variables> apply_env_options(Variables inherited, const std::vector<std::string>& options) {
  for (const std::string& option : options) {
    const size_t equals = option.find('=');
    const std::string name = option.substr(0, equals);
    if (!is_name(name)) {
      return Status(Code::kInvalidArgument,
                    "--env " + option + ": not a variable; write --env NAME=VALUE or --env NAME");
    }
    if (std::ranges::find(kReserved, name) != kReserved.end()) {
      return Status(Code::kInvalidArgument, "--env " + name + ": corro sets this one itself");
    }
    if (equals != std::string::npos) {
      inherited[name] = option.substr(equals + 1);
    } else if (!inherited.contains(name)) {
      return Status(Code::kInvalidArgument,
                    "--env " + name + ": not set here; write --env " + name + "=VALUE");
    }
  }
  return inherited;
}

Variables worker_variables(const JobFacts& job, int rank, const Variables& base) {
  Variables variables;
  variables["CORRO_RUN"] = "1";
  variables["CORRO_RANK"] = std::to_string(rank);
  variables["CORRO_SIZE"] = std::to_string(job.ranks);
  variables["CORRO_LOCAL_RANK"] = std::to_string(rank);
  variables["CORRO_LOCAL_SIZE"] = std::to_string(job.ranks);
  variables["CORRO_NODE_RANK"] = "0";
  variables["CORRO_NODES"] = "1";
  variables["CORRO_JOB_ID"] = job.job_id;
  variables["CORRO_AGENT"] = job.agent;
  add_torchrun_names(job, rank, variables);
  // Lines reach the screen when they are printed; a crash in native code shows its Python stack.
  const Variables defaults = {{"PYTHONUNBUFFERED", "1"},
                              {"PYTHONFAULTHANDLER", "1"},
                              {"OMP_NUM_THREADS", std::to_string(job.threads)}};
  for (const auto& [name, value] : defaults) {
    if (!base.contains(name)) variables[name] = value;
  }
  return variables;
}

}  // namespace corro::launch
