#include <fmt/format.h>

#include "app/choose_job.h"
#include "app/commands.h"

namespace corro::app {
namespace {

Result<std::string> change_servers(const LookCommand& look) {
  const std::string change = look.add ? fmt::format("--add {}", *look.add)
                                      : fmt::format("--remove {}", look.remove.value_or(0));
  CORRO_ASSIGN(const auto job,
               choose_job(launch::find_jobs(), look.job, "corro servers " + change));
  return launch::ask(job,
                     launch::ServerChange{.number = look.add.value_or(look.remove.value_or(0)),
                                          .leaves = look.remove.has_value()},
                     kAnswerPatience);
}

}  // namespace

int servers_command(const LookCommand& look) {
  const auto text = change_servers(look);
  if (!text.ok()) {
    complain("corro servers: " + text.status().message());
    return 1;
  }
  fmt::print("{}\n", *text);
  return 0;
}

}  // namespace corro::app
