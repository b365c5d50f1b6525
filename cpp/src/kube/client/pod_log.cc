#include "kube/client/pod_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kube/client/api_error.h"
#include "kube/client/watch.h"

namespace corro::kube {
namespace {

/// The item of a list with this name, or null.
const Json* item_of(const Json& pod, std::initializer_list<std::string_view> path,
                    const std::string& name) {
  const Json* list = value_at(pod, path);
  if (list == nullptr || !list->is_array()) return nullptr;
  const auto found = std::ranges::find_if(
      *list, [&](const Json& item) { return text_at(item, {"name"}) == name; });
  return found == list->end() ? nullptr : &*found;
}

/// One call of follow_log().
class Following {
 public:
  Following(Client& client, const LogRequest& request, const LogLines::Receive& receive,
            const std::function<void(const Status&)>& on_trouble, const std::stop_token& stop)
      : client_(client),
        request_(request),
        receive_(receive),
        on_trouble_(on_trouble),
        stop_(stop),
        name_(describe(kPods, request.pod) + ": log of " + on_one_line(request.container)),
        lines_(request.tail_lines.has_value()) {}
  [[nodiscard]] Status run();

 private:
  [[nodiscard]] Result<ContainerState> look();
  [[nodiscard]] Status stream();
  [[nodiscard]] Result<std::string> target() const;
  [[nodiscard]] bool is_final(const Status& status) const;
  [[nodiscard]] Duration next_wait();

  Client& client_;
  const LogRequest& request_;
  const LogLines::Receive& receive_;
  const std::function<void(const Status&)>& on_trouble_;
  const std::stop_token& stop_;
  const std::string name_;
  LogLines lines_;
  Status refused_;  ///< The failure that receive_ returned.
  bool has_received_ = false;
  uint32_t empty_rounds_ = 0;  ///< In a row.
};

Result<ContainerState> Following::look() {
  CORRO_ASSIGN(const Json pod, client_.get(kPods, request_.pod, stop_));
  return container_state(pod, request_.container, name_);
}

Result<std::string> Following::target() const {
  CORRO_ASSIGN(const std::string path, path_of(kPods, request_.pod, "log"));
  const auto last = lines_.since();
  const std::optional<std::chrono::sys_seconds> since =
      last ? std::max(*last, request_.since.value_or(*last)) : request_.since;
  const bool is_tail = request_.tail_lines && !last;
  return path + query_of({{"follow", "true"},
                          {"timestamps", "true"},
                          {"container", request_.container},
                          {"sinceTime", since ? rfc3339_seconds(*since) : ""},
                          {"tailLines", is_tail ? std::to_string(*request_.tail_lines) : ""}});
}

Status Following::stream() {
  CORRO_ASSIGN(std::string where, target());
  lines_.begin();
  // A silent container sends nothing, not even the answer's head. Asking again does no harm.
  ExchangeLimits limits;
  limits.answer = std::chrono::minutes(10);
  limits.silence = std::chrono::minutes(10);
  std::optional<Duration> retry;
  const auto hand_on = [&](std::string_view bytes) {
    has_received_ = true;
    refused_ = receive_(bytes);
    return refused_;
  };
  return client_.stream(
      {"GET", std::move(where)}, name_, limits, stop_,
      [&](std::string_view piece) { return lines_.feed(piece, hand_on); }, retry);
}

bool Following::is_final(const Status& status) const {
  if (!refused_.ok() || status.code() == Code::kNotFound) return true;
  const bool is_refusal =
      WatchCourse::is_final(status.code()) || status.code() == Code::kFailedPrecondition;
  return is_refusal && !request_.outlasts_refusals;
}

Duration Following::next_wait() {
  empty_rounds_ = std::exchange(has_received_, false) ? 0 : std::min(empty_rounds_ + 1, 30U);
  return back_off(empty_rounds_, client_.surroundings().random(), std::chrono::milliseconds(100),
                  std::chrono::seconds(5));
}

Status Following::run() {
  while (!stop_.stop_requested()) {
    const Result<ContainerState> state = look();
    const bool has_log = state.ok() && *state != ContainerState::kWaits;
    const Status status = has_log ? stream() : state.status();
    if (stop_.stop_requested()) break;
    if (status.ok() && has_log && *state == ContainerState::kEnded) return {};
    if (is_final(status)) return refused_.ok() ? status : refused_;
    // Silence is no trouble.
    if (!status.ok() && status.code() != Code::kDeadlineExceeded) on_trouble_(status);
    if (client_.surroundings().wait(next_wait(), stop_)) break;
  }
  return {Code::kCancelled, name_ + ": stopped"};
}

}  // namespace

Result<ContainerState> container_state(const Json& pod, const std::string& container,
                                       const std::string& name) {
  bool is_there = false;
  const Json* status = nullptr;
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kKinds = {
      {{"containers", "containerStatuses"},
       {"initContainers", "initContainerStatuses"},
       {"ephemeralContainers", "ephemeralContainerStatuses"}}};
  for (const auto& [specs, statuses] : kKinds) {
    is_there = is_there || item_of(pod, {"spec", specs}, container) != nullptr;
    if (status == nullptr) status = item_of(pod, {"status", statuses}, container);
  }
  if (!is_there) return Status(Code::kNotFound, name + ": the pod has no such container");
  const auto has = [&](std::initializer_list<std::string_view> path) {
    return status != nullptr && value_at(*status, path) != nullptr;
  };
  if (has({"state", "terminated"})) return ContainerState::kEnded;
  if (has({"state", "running"}) || has({"lastState", "terminated"})) return ContainerState::kRuns;
  const std::string phase = text_at(pod, {"status", "phase"});
  if (phase != "Failed" && phase != "Succeeded") return ContainerState::kWaits;
  return Status(Code::kFailedPrecondition,
                fmt::format("{}: the container never ran: the pod is {}: {} {}", name,
                            on_one_line(phase), on_one_line(text_at(pod, {"status", "reason"})),
                            on_one_line(text_at(pod, {"status", "message"}))));
}

Status follow_log(Client& client, const LogRequest& request, const LogLines::Receive& receive,
                  const std::function<void(const Status&)>& on_trouble,
                  const std::stop_token& stop) {
  return Following(client, request, receive, on_trouble, stop).run();
}

}  // namespace corro::kube
