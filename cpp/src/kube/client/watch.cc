#include "kube/client/watch.h"

#include <algorithm>
#include <utility>

namespace corro::kube {
namespace {

/// One call of watch().
class Watching {
 public:
  Watching(Client& client, const WatchRequest& request,
           const std::function<void(WatchEvent)>& on_event, const std::stop_token& stop)
      : client_(client), request_(request), on_event_(on_event), stop_(stop) {}
  [[nodiscard]] Status run();

 private:
  [[nodiscard]] Status list();
  [[nodiscard]] Status stream(Duration& retry_after);

  Client& client_;
  const WatchRequest& request_;
  const std::function<void(WatchEvent)>& on_event_;
  const std::stop_token& stop_;
  WatchCourse course_;
};

Status Watching::list() {
  CORRO_ASSIGN(ObjectList list,
               client_.list(request_.type, request_.space, request_.selector, stop_));
  course_.listed(list.resource_version);
  WatchEvent event;
  event.kind = WatchEvent::Kind::kResynced;
  event.objects = std::move(list.objects);
  event.resource_version = std::move(list.resource_version);
  on_event_(std::move(event));
  for (std::string& name : list.refused) {
    WatchEvent refused;
    refused.kind = WatchEvent::Kind::kRefused;
    refused.name = std::move(name);
    on_event_(std::move(refused));
  }
  return {};
}

Status Watching::stream(Duration& retry_after) {
  const std::string name = describe(request_.type, {request_.space, ""});
  CORRO_ASSIGN(std::string target, path_of(request_.type, {request_.space, ""}));
  // The server ends a watch after this time, each at another moment: five to ten minutes.
  const auto seconds = static_cast<int64_t>(300 + 300 * client_.surroundings().random());
  target += query_of({{"watch", "true"},
                      {"allowWatchBookmarks", "true"},
                      {"resourceVersion", course_.version()},
                      {"timeoutSeconds", std::to_string(seconds)},
                      {"labelSelector", request_.selector.labels},
                      {"fieldSelector", request_.selector.fields}});
  ExchangeLimits limits;
  limits.deadline = client_.surroundings().now() + std::chrono::seconds(seconds + 30);
  limits.silence = std::chrono::seconds(seconds + 30);  // Nothing may change for so long.
  WatchLines lines(client_.options().most_object_bytes, name);
  std::optional<Duration> retry;
  const Status status = client_.stream(
      {"GET", std::move(target)}, name, limits, stop_,
      [&](std::string_view piece) {
        return lines.feed(piece, [&](WatchEvent event) -> Status {
          if (stop_.stop_requested()) return {Code::kCancelled, "stopped"};
          course_.seen(event.resource_version);
          on_event_(std::move(event));
          return {};
        });
      },
      retry);
  retry_after = retry.value_or(Duration::zero());
  CORRO_TRY(status);
  return lines.finish();
}

Status Watching::run() {
  const Surroundings& surroundings = client_.surroundings();
  while (!stop_.stop_requested()) {
    const Time begin = surroundings.now();
    const bool is_list = course_.next() == WatchCourse::Step::kList;
    Duration retry_after{};
    const Status status = is_list ? list() : stream(retry_after);
    if (is_list && status.ok()) continue;
    if (stop_.stop_requested()) break;
    if (WatchCourse::is_final(status.code())) return status;
    const Duration delay = course_.ended(status.code(), surroundings.now() - begin, retry_after,
                                         surroundings.random());
    if (!status.ok()) {
      WatchEvent event;
      event.kind = WatchEvent::Kind::kTrouble;
      event.trouble = status;
      on_event_(std::move(event));
    }
    if (surroundings.wait(delay, stop_)) break;
  }
  return {Code::kCancelled, describe(request_.type, {request_.space, ""}) + ": watch: stopped"};
}

}  // namespace

void WatchCourse::seen(const std::string& version) {
  failures_ = 0;
  if (!version.empty()) version_ = version;
}

Duration WatchCourse::ended(Code code, Duration lasted, Duration retry_after, double random) {
  constexpr Duration kLong = std::chrono::seconds(10);
  // Unreadable bytes may be the server's for ever: the state is listed afresh.
  if (code == Code::kOutOfRange || code == Code::kDataLoss) version_.clear();
  if (lasted >= kLong) failures_ = 0;
  const Duration delay =
      back_off(failures_, random, std::chrono::milliseconds(100), std::chrono::seconds(30));
  failures_ = std::min(failures_ + 1, 30U);
  return std::max(delay, std::min<Duration>(retry_after, kMostRetryAfter));
}

bool WatchCourse::is_final(Code code) {
  return code == Code::kInvalidArgument || code == Code::kNotFound ||
         code == Code::kPermissionDenied;
}

Status watch(Client& client, const WatchRequest& request,
             const std::function<void(WatchEvent)>& on_event, const std::stop_token& stop) {
  return Watching(client, request, on_event, stop).run();
}

}  // namespace corro::kube
