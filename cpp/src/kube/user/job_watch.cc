#include "kube/user/job_watch.h"

#include <utility>

#include "kube/job/names.h"

namespace corro::kube {

JobWatch::JobWatch(Client& client, const ObjectKey& job, const std::string& uid) : uid_(uid) {
  const WatchRequest jobs{kCorroJobs, job.space, {.fields = "metadata.name=" + job.name}};
  const WatchRequest pods{kPods, job.space, {.labels = std::string(kUidLabel) + "=" + uid}};
  jobs_ = std::thread([this, &client, jobs] { follow(client, jobs, Kind::kJob); });
  pods_ = std::thread([this, &client, pods] { follow(client, pods, Kind::kPod); });
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

void JobWatch::follow(Client& client, const WatchRequest& request, Kind kind) {
  const auto hear = [this, kind](const WatchEvent& event) { take(event, kind); };
  const Status end = watch(client, request, hear, stop_.get_token());
  if (stop_.stop_requested()) return;
  auto news = news_.lock();
  news->seen.failure = end;
  news->are_new = true;
}

/// What is deleted while a watch is cut is told by nobody: the next list lacks it.
void JobWatch::take(const WatchEvent& event, Kind kind) {
  auto news = news_.lock();
  news->are_new = true;
  Seen& seen = news->seen;
  seen.trouble = event.kind == WatchEvent::Kind::kTrouble ? event.trouble.message() : std::string();
  if (event.kind == WatchEvent::Kind::kResynced) {
    if (kind == Kind::kJob) {
      seen.job.reset();
      seen.is_deleted = true;
    } else {
      for (const auto& [name, pod] : seen.pods) seen.gone.insert(name);
    }
    for (const Json& object : event.objects) keep(object, false, kind, seen);
  } else if (event.object.is_object()) {
    keep(event.object, event.kind == WatchEvent::Kind::kDeleted, kind, seen);
  }
}

void JobWatch::keep(const Json& object, bool is_deleted, Kind kind, Seen& seen) const {
  if (kind == Kind::kPod) {
    const std::string name = text_at(object, {"metadata", "name"});
    seen.pods[name] = object;
    if (is_deleted) seen.gone.insert(name);
    if (!is_deleted) seen.gone.erase(name);
  } else if (text_at(object, {"metadata", "uid"}) == uid_) {
    seen.is_deleted = is_deleted;
    seen.job = is_deleted ? std::nullopt : std::optional(object);
  }
}

}  // namespace corro::kube
