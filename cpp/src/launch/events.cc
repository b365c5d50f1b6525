#include "launch/events.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <nlohmann/json.hpp>

namespace corro::launch {
namespace {

constexpr mode_t kEventFileMode = 0644;

double unix_time() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  constexpr double kNanoseconds = 1e-9;
  return static_cast<double>(now.tv_sec) + kNanoseconds * static_cast<double>(now.tv_nsec);
}

}  // namespace

std::string_view name_of(EventKind kind) {
  constexpr std::array<std::string_view, 20> kNames = {
      "started", "joined", "step",        "checkpoint",     "plan",        "training", "waiting",
      "ended",   "lost",   "server_lost", "server_started", "server_left", "prepare",  "epoch",
      "policy",  "fenced", "host",        "lead",           "stopped",     "failure"};
  return kNames[static_cast<size_t>(kind)];
}

std::string format_event(const Event& event, double unix_time) {
  using Json = nlohmann::ordered_json;
  Json json;
  json["time"] = unix_time;
  json["event"] = name_of(event.kind);
  json["epoch"] = event.epoch;
  json["host"] = event.host.empty() ? Json() : Json(event.host);
  json["rank"] = event.rank < 0 ? Json() : Json(event.rank);
  json["place"] = event.place < 0 ? Json() : Json(event.place);
  json["step"] = event.step ? Json(*event.step) : Json();
  json["cause"] = event.cause.empty() ? Json() : Json(event.cause);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<EventFile> EventFile::create(const std::string& path, Earlier earlier) {
  const int empties = earlier == Earlier::kDropped ? O_TRUNC : 0;
  // A pipe's reader that is not there, or slow, does not hold up the job.
  io::Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | empties,
                 kEventFileMode));
  if (!fd.valid() && errno == ENXIO)
    return Status(Code::kUnavailable, fmt::format("--events {}: nobody reads this pipe", path));
  if (!fd.valid()) return status_from_errno("--events " + path, errno);
  return EventFile(std::move(fd), path);
}

Status EventFile::append(const Event& event) {
  if (failed_) return {};
  const double age = std::chrono::duration<double>(event.age).count();
  const std::string line = format_event(event, unix_time() - age);
  if (write(fd_.get(), line.data(), line.size()) == std::ssize(line)) return {};
  failed_ = true;
  return status_from_errno("writing " + path_, errno);
}

}  // namespace corro::launch
