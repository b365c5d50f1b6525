#include "launch/policy_command.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/socket.h"

namespace corro::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr Duration kPatience = std::chrono::seconds(1);
/// Agents take a launcher for dead that says nothing for 10 s.
constexpr Duration kMostTaken = std::chrono::seconds(3);
/// Until one whose pipes have ended has, too.
constexpr Duration kDyingPatience = std::chrono::milliseconds(200);
constexpr double kMostSeconds = 24 * 3600.0;

std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Null if there is none.
Json member_of(const Json& answer, const char* name) {
  const auto found = answer.find(name);
  return found == answer.end() ? Json() : *found;
}

std::optional<coord::Wait> read_wait(const Json& answer, const coord::Wait& otherwise) {
  const Json seconds = member_of(answer, "wait");
  if (seconds.is_null()) return otherwise;
  if (!seconds.is_number()) return std::nullopt;
  const double count = seconds.get<double>();
  if (!(count >= 0 && count <= kMostSeconds)) return std::nullopt;
  return coord::Wait{
      .span = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(count)),
      .why = fmt::format("{:g} s, as --policy says", count)};
}

std::optional<coord::Verdict> read_verdict(const Json& answer, const coord::Verdict& otherwise,
                                           size_t sides) {
  const Json side = member_of(answer, "fence");
  if (side.is_null()) return otherwise;
  if (!side.is_number_unsigned() || side.get<uint64_t>() >= sides) return std::nullopt;
  return coord::Verdict{.side = side.get<size_t>(), .why = "it goes, as --policy says"};
}

/// `read`: takes the rest of it; none if that makes no sense. `like`: what does.
template <typename Answer, typename Read>
Result<Answer> read_answer(const std::string& line, const Read& read, const char* like) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  const Json why = json.is_object() ? member_of(json, "why") : Json();
  std::optional<Answer> answer = json.is_object() ? read(json) : std::nullopt;
  if (!answer || !(why.is_null() || why.is_string())) {
    return Status(Code::kInvalidArgument,
                  fmt::format("answers {:.200}, which is not like {}", line, like));
  }
  if (why.is_null()) return *answer;
  const std::string what = answer->why.empty() ? "" : ": " + answer->why;
  answer->why = why.template get<std::string>() + what;
  return *answer;
}

}  // namespace

Result<std::shared_ptr<PolicyCommand>> PolicyCommand::start(const std::string& command,
                                                            const sigset_t& mask) {
  CORRO_ASSIGN(auto program, ShellProgram::start(command, agent::StandardInput::kSent, mask));
  return std::shared_ptr<PolicyCommand>(new PolicyCommand(command, std::move(program)));
}

coord::Wait PolicyCommand::ask(const std::string& question, const coord::Wait& otherwise) {
  return ask_for(question, otherwise, [&](const std::string& line) {
    return read_answer<coord::Wait>(
        line, [&](const Json& json) { return read_wait(json, otherwise); },
        R"({"wait": 5, "why": "..."})");
  });
}

coord::Verdict PolicyCommand::ask(const std::string& question, const coord::Verdict& otherwise,
                                  size_t sides) {
  return ask_for(question, otherwise, [&](const std::string& line) {
    return read_answer<coord::Verdict>(
        line, [&](const Json& json) { return read_verdict(json, otherwise, sides); },
        R"({"fence": 0, "why": "..."})");
  });
}

template <typename Answer, typename Read>
Answer PolicyCommand::ask_for(const std::string& question, const Answer& otherwise,
                              const Read& read) {
  if (!program_) return otherwise;
  const auto line = answer_to(question);
  const Result<Answer> answer = line.ok() ? read(*line) : line.status();
  if (answer.ok()) return *answer;
  Answer last = otherwise;
  last.why = give_up(answer.status().message());
  return last;
}

std::string PolicyCommand::give_up(const std::string& why) {
  program_.reset();
  return fmt::format("--policy {}: {}; it is asked no more", command_, why);
}

std::string PolicyCommand::look() {
  const auto status = program_ ? program_->status() : std::nullopt;
  if (!status) return "";
  (void)program_->read();
  return give_up(describe_end(*status, program_->last_word()));
}

/// While nothing is asked the program makes up for what it has taken.
Result<std::string> PolicyCommand::answer_to(const std::string& question) {
  const Time asked = monotonic_now();
  auto line = exchange(question);
  const Time answered = monotonic_now();
  taken_ = std::max(Duration::zero(), taken_ - (asked - taken_at_)) + (answered - asked);
  taken_at_ = answered;
  if (!line.ok() || taken_ <= kMostTaken) return line;
  return Status(Code::kDeadlineExceeded, "it has taken more than 3 s for its last answers");
}

Result<std::string> PolicyCommand::exchange(const std::string& question) {
  (void)program_->read();
  program_->printed.clear();  // That nobody has asked for.
  const std::string line = question + "\n";
  if (write(program_->in(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    return failure("it reads nothing");
  const Time until = monotonic_now() + kPatience;
  while (true) {
    const bool goes_on = program_->read();
    const std::string& answer = program_->printed;
    if (const size_t end = answer.find('\n'); end != std::string::npos)
      return answer.substr(0, end);
    if (!goes_on) return failure("it has closed its standard output");
    if (!io::wait_ready(program_->out(), POLLIN, until))
      return Status(Code::kDeadlineExceeded, "it has not answered after 1 s");
  }
}

/// Of one with which nothing can be exchanged: how it has ended, unless it goes on.
Status PolicyCommand::failure(const std::string& symptom) {
  const Time until = monotonic_now() + kDyingPatience;
  std::optional<int> status = program_->status();
  for (; !status && monotonic_now() < until; status = program_->status())
    (void)::poll(nullptr, 0, 1);
  (void)program_->read();
  return {Code::kUnavailable, status ? describe_end(*status, program_->last_word()) : symptom};
}

coord::Policy asked_policy(const std::shared_ptr<PolicyCommand>& program,
                           const coord::Policy& otherwise,
                           const std::function<std::string(size_t host)>& host_name) {
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
  const auto quarantine = [program, host_name,
                           standard = otherwise.quarantine](const coord::Failure& failure) {
    const Json question = {
        {"about", "failure"}, {"host", host_name(failure.host)}, {"failures", failure.failures}};
    return program->ask(text_of(question), standard(failure));
  };
  const auto fence = [program, host_name, standard = otherwise.fence](const coord::Cut& cut) {
    Json sides = Json::array();
    for (const coord::Cut::Side& side : cut.sides)
      sides.push_back({{"host", host_name(side.host)},
                       {"ranks", side.members.size()},
                       {"accusers", side.accusers}});
    const Json question = {{"about", "cut"}, {"cause", cut.how}, {"sides", sides}};
    return program->ask(text_of(question), standard(cut), cut.sides.size());
  };
  return {.replace = replace, .gather = gather, .quarantine = quarantine, .fence = fence};
}

}  // namespace corro::launch
