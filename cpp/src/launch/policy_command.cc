#include "launch/policy_command.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "io/socket.h"

namespace corro::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr Duration kPatience = std::chrono::seconds(1);
constexpr double kMostSeconds = 24 * 3600.0;

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<coord::Wait> read_answer(const std::string& line, const coord::Wait& otherwise) {
  const Json answer = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  const auto nonsense = [&line] {
    constexpr const char* kLike = R"({"wait": 5, "why": "..."})";
    return Status(Code::kInvalidArgument,
                  fmt::format("answers {:.200}, which is not like {}", line, kLike));
  };
  if (!answer.is_object()) return nonsense();
  coord::Wait wait = otherwise;
  if (const auto seconds = answer.find("wait"); seconds != answer.end() && !seconds->is_null()) {
    if (!seconds->is_number()) return nonsense();
    const double count = seconds->get<double>();
    if (!(count >= 0 && count <= kMostSeconds)) return nonsense();
    wait.span = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(count));
  }
  if (const auto why = answer.find("why"); why != answer.end() && !why->is_null()) {
    if (!why->is_string()) return nonsense();
    wait.why = why->get<std::string>();
  }
  return wait;
}

}  // namespace

Result<std::shared_ptr<PolicyCommand>> PolicyCommand::start(const std::string& command,
                                                            const sigset_t& mask) {
  CORRO_ASSIGN(auto program, ShellProgram::start(command, agent::StandardInput::kSent, mask));
  return std::shared_ptr<PolicyCommand>(new PolicyCommand(command, std::move(program)));
}

coord::Wait PolicyCommand::ask(const std::string& question, const coord::Wait& otherwise) {
  if (!program_) return otherwise;
  Status trouble;
  if (const auto line = exchange(question); line.ok()) {
    const auto wait = read_answer(*line, otherwise);
    if (wait.ok()) return *wait;
    trouble = wait.status();
  } else {
    trouble = line.status();
  }
  program_.reset();
  return {.span = otherwise.span,
          .why = fmt::format("--policy {}: {}; it is asked no more", command_, trouble.message())};
}

Result<std::string> PolicyCommand::exchange(const std::string& question) {
  (void)program_->read();
  program_->printed.clear();  // That nobody has asked for.
  const std::string line = question + "\n";
  if (write(program_->in(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    return Status(Code::kUnavailable, "it reads nothing");
  const Time until = monotonic_now() + kPatience;
  while (true) {
    const bool goes_on = program_->read();
    const std::string& answer = program_->printed;
    if (const size_t end = answer.find('\n'); end != std::string::npos)
      return answer.substr(0, end);
    const std::string last = program_->last_word();
    if (!goes_on)
      return Status(Code::kUnavailable, "it has ended" + (last.empty() ? "" : ": " + last));
    if (!io::wait_ready(program_->out(), POLLIN, until))
      return Status(Code::kDeadlineExceeded, "it has not answered after 1 s");
  }
}

coord::Policy asked_policy(const std::shared_ptr<PolicyCommand>& program,
                           const coord::Policy& otherwise,
                           std::function<std::string(size_t host)> host_name) {
  const auto replace = [program, standard = otherwise.replace](const coord::Loss& loss) {
    const Json question = {{"about", "loss"},
                           {"cause", loss.how},
                           {"left", loss.left},
                           {"size", loss.size},
                           {"least", loss.least}};
    return program->ask(text_of(question), standard(loss));
  };
  const auto gather = [program, standard = otherwise.gather](const coord::Growth& growth) {
    const Json question = {{"about", "growth"},
                           {"size", growth.size},
                           {"coming", growth.coming},
                           {"most", growth.most}};
    return program->ask(text_of(question), standard(growth));
  };
  const auto quarantine = [program, host_name = std::move(host_name),
                           standard = otherwise.quarantine](const coord::Failure& failure) {
    const Json question = {
        {"about", "failure"}, {"host", host_name(failure.host)}, {"failures", failure.failures}};
    return program->ask(text_of(question), standard(failure));
  };
  return {.replace = replace, .gather = gather, .quarantine = quarantine};
}

}  // namespace corro::launch
