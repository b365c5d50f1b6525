#include "app/server_options.h"

#include <CLI/CLI.hpp>

#include "app/command_line.h"

namespace corro::app {
namespace {

constexpr const char* kServerExamples = R"(
Started by `corro run --servers N program`, which says in its environment which server of which job it is
(CORRO_SERVER, CORRO_SERVERS, CORRO_SIZE, CORRO_AGENT). It ends with SIGTERM, once no rank runs.
)";

}  // namespace

Result<ServerRequest> parse_server_line(const std::vector<std::string>& arguments) {
  CLI::App program("corro serves tables.", "corro");
  program.require_subcommand(1);
  describe_server(program);
  CORRO_ASSIGN(auto help, parse_words(program, arguments));
  return ServerRequest{.text = std::move(help).value_or(""), .command = {}};
}

void describe_server(CLI::App& program) {
  CLI::App& app =
      *program.add_subcommand("server", "Serve the tables of a job: one of its servers");
  app.group("");  // nothing to type
  app.footer(kServerExamples);
}

}  // namespace corro::app
