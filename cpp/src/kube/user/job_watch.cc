#include "kube/user/job_watch.h"

#include <utility>

#include "kube/job/names.h"

namespace corro::kube {

JobWatch::JobWatch(Client& client, const ObjectKey& job, const std::string& uid) : uid_(uid) {
  const WatchRequest jobs{kCorroJobs, job.space, {.fields = "metadata.name=" + job.name}};
  const WatchRequest pods{kPods, job.space, {.labels = std::string(kUidLabel) + "=" + uid}};
  jobs_ = std::thread([this, &client, jobs] { follow(client, jobs); });
  pods_ = std::thread([this, &client, pods] { follow(client, pods); });
}

JobWatch::~JobWatch() {
  stop_.request_stop();
  jobs_.join();
  pods_.join();
}

void JobWatch::take_news(Seen& seen) {
  auto news = news_.lock();
  if (std::exchange(news->are_new, false)) seen = news->seen;
}

void JobWatch::follow(Client& client, const WatchRequest& request) {
  const Status end =
      watch(client, request, [this](const WatchEvent& event) { take(event); }, stop_.get_token());
  if (stop_.stop_requested()) return;
  auto news = news_.lock();
  news->seen.failure = end;
  news->are_new = true;
}

void JobWatch::take(const WatchEvent& event) {
  auto news = news_.lock();
  news->are_new = true;
  Seen& seen = news->seen;
  seen.trouble = event.kind == WatchEvent::Kind::kTrouble ? event.trouble.message() : std::string();
  if (event.kind == WatchEvent::Kind::kResynced) {
    for (const Json& object : event.objects) keep(object, false, seen);
  } else if (event.object.is_object()) {
    keep(event.object, event.kind == WatchEvent::Kind::kDeleted, seen);
  }
}

void JobWatch::keep(const Json& object, bool is_deleted, Seen& seen) const {
  // Items of a list of pods have no kind.
  if (value_at(object, {"spec", "containers"}) != nullptr) {
    seen.pods[text_at(object, {"metadata", "name"})] = object;
  } else if (text_at(object, {"metadata", "uid"}) == uid_) {
    seen.is_deleted = is_deleted;
    seen.job = is_deleted ? std::nullopt : std::optional(object);
  }
}

}  // namespace corro::kube
