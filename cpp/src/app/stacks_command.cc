#include <fmt/format.h>

#include "app/choose_job.h"
#include "app/commands.h"

namespace corro::app {
namespace {

Result<std::string> ask_stacks(const std::string& wanted) {
  CORRO_ASSIGN(const auto job, choose_job(launch::find_jobs(), wanted, "corro stacks"));
  return launch::ask(job, launch::Question::kStacks, kAnswerPatience);
}

}  // namespace

int stacks_command(const std::string& job) {
  const auto text = ask_stacks(job);
  if (!text.ok()) {
    complain("corro stacks: " + text.status().message());
    return 1;
  }
  fmt::print("{}", *text);
  return 0;
}

}  // namespace corro::app
