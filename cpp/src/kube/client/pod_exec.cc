#include "kube/client/pod_exec.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "kube/client/api_error.h"

namespace corro::kube {
namespace {

constexpr std::string_view kHalfClosing = "v5.channel.k8s.io";
constexpr std::string_view kOlder = "v4.channel.k8s.io";

constexpr uint8_t kInput = 0;
constexpr uint8_t kStatus = 3;
constexpr uint8_t kResize = 4;
constexpr uint8_t kEndOfChannel = 255;

constexpr size_t kMostInputQueued = size_t{256} << 10U;
/// Servers read a message whole before they hand it on.
constexpr size_t kMostInputBytes = size_t{32} << 10U;
constexpr size_t kMostStatusBytes = size_t{64} << 10U;

/// An empty word of the command counts too, and query_of() leaves it out.
std::string query_of_word(const std::string& word) {
  return word.empty() ? "&command=" : "&" + query_of({{"command", word}}).substr(1);
}

Result<std::string> target_of(const ExecRequest& request) {
  CORRO_ASSIGN(std::string target, path_of(kPods, request.pod, "exec"));
  target += query_of({{"stdout", "true"},
                      {"stderr", request.has_terminal ? "" : "true"},
                      {"stdin", request.has_input ? "true" : ""},
                      {"tty", request.has_terminal ? "true" : ""},
                      {"container", request.container}});
  for (const std::string& word : request.command) target += query_of_word(word);
  return target;
}

/// Says which right is missing, and tells a container that does not run from a server in trouble.
/// The request is a GET, for which servers ask the right "get", and newer ones "create" too.
Status explain(const Status& refusal, const std::string& name) {
  const bool is_absent = refusal.message().find("container not found") != std::string::npos;
  if (is_absent) return {Code::kNotFound, refusal.message()};
  if (refusal.code() != Code::kPermissionDenied) return refusal;
  const std::string_view said = std::string_view(refusal.message()).substr(name.size());
  const bool is_create = said.find("cannot create") != std::string_view::npos;
  const bool is_get = said.find("cannot get") != std::string_view::npos;
  return {refusal.code(), fmt::format("{}: the right to {} pods/exec is missing{}", name,
                                      is_create ? "create"
                                      : is_get  ? "get"
                                                : "get and create",
                                      said)};
}

}  // namespace

Result<int> exit_code_of(const Json& status, const std::string& name) {
  if (text_at(status, {"status"}) == "Success") return 0;
  const Json* causes = value_at(status, {"details", "causes"});
  const bool has_causes = causes != nullptr && causes->is_array();
  for (const Json& cause : has_causes ? *causes : Json::array()) {
    if (text_at(cause, {"reason"}) != "ExitCode") continue;
    const std::string text = text_at(cause, {"message"});
    int code = 0;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), code).ptr;
    if (end == text.data() + text.size() && !text.empty()) return code;
  }
  return explain(error_of(status, name), name);
}

Result<std::unique_ptr<ExecStream>> ExecStream::open(Client& client, const ExecRequest& request,
                                                     Receive receive, const Until& until) {
  const std::string name = describe(kPods, request.pod) + ": exec";
  CORRO_ASSIGN(std::string target, target_of(request));
  const WebSocketRequest wanted{
      std::move(target), {std::string(kHalfClosing), std::string(kOlder)}, name};
  Result<std::unique_ptr<WebSocket>> socket = WebSocket::open(client, wanted, until);
  if (!socket.ok()) return explain(socket.status(), name);
  return std::make_unique<ExecStream>(std::move(socket).value(), name, std::move(receive));
}

void ExecStream::send(uint8_t channel, std::string_view bytes) {
  std::string message(1, static_cast<char>(channel));
  message += bytes;
  socket_->send(message);
}

size_t ExecStream::write_input(std::string_view bytes) {
  if (exit_code_) return 0;
  size_t taken = 0;
  while (taken < bytes.size() && socket_->unsent() + kMostInputBytes <= kMostInputQueued) {
    const std::string_view part = bytes.substr(taken, kMostInputBytes);
    send(kInput, part);
    taken += part.size();
  }
  return taken;
}

Status ExecStream::close_input() {
  if (socket_->protocol() != kHalfClosing) {
    return {Code::kFailedPrecondition,
            fmt::format("{}: the server speaks {}, where an input cannot be ended", name_,
                        socket_->protocol())};
  }
  if (!exit_code_) send(kEndOfChannel, std::string_view("\0", 1));
  return {};
}

void ExecStream::resize(uint16_t columns, uint16_t rows) {
  if (!exit_code_) send(kResize, fmt::format(R"({{"Width":{},"Height":{}}})", columns, rows));
}

Status ExecStream::turn(Time until) {
  if (exit_code_) return {};
  const Status status =
      socket_->turn(until, [&](std::string_view message) { return take(message); });
  // The server may close at once behind the status.
  return exit_code_ ? Status() : status;
}

Status ExecStream::take(std::string_view message) {
  if (message.empty()) return {Code::kDataLoss, name_ + ": a message without a channel"};
  const auto channel = static_cast<uint8_t>(message.front());
  const std::string_view bytes = message.substr(1);
  // Servers begin with an empty message, and a status is the last.
  if (bytes.empty() || exit_code_) return {};
  const bool is_output = channel == static_cast<uint8_t>(ExecOutput::kOut) ||
                         channel == static_cast<uint8_t>(ExecOutput::kError);
  if (is_output) return receive_(static_cast<ExecOutput>(channel), bytes);
  return channel == kStatus ? take_status(bytes) : Status();
}

Status ExecStream::take_status(std::string_view piece) {
  if (status_.size() + piece.size() > kMostStatusBytes) {
    return {Code::kDataLoss, name_ + ": the command's status is too long"};
  }
  status_ += piece;
  const Result<Json> status = parse_object(status_, name_, kMostStatusBytes);
  if (!status.ok()) return {};  // There is more to come.
  CORRO_ASSIGN(exit_code_, exit_code_of(*status, name_));
  return {};
}

Result<int> ExecStream::wait(Time deadline) {
  while (!exit_code_) {
    if (monotonic_now() >= deadline) {
      return Status(Code::kDeadlineExceeded, name_ + ": the command has not ended in time");
    }
    CORRO_TRY(turn(deadline));
  }
  return *exit_code_;
}

}  // namespace corro::kube
