#include "kube/user/job_watch.h"

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

JobWatch::Seen JobWatch::seen() { return *seen_.lock(); }

void JobWatch::follow(Client& client, const WatchRequest& request) {
  const Status end =
      watch(client, request, [this](const WatchEvent& event) { take(event); }, stop_.get_token());
  if (!stop_.stop_requested()) seen_.lock()->failure = end;
}

void JobWatch::take(const WatchEvent& event) {
  seen_.lock()->trouble =
      event.kind == WatchEvent::Kind::kTrouble ? event.trouble.message() : std::string();
  if (event.kind == WatchEvent::Kind::kResynced) {
    for (const Json& object : event.objects) keep(object, false);
  } else if (event.object.is_object()) {
    keep(event.object, event.kind == WatchEvent::Kind::kDeleted);
  }
}

void JobWatch::keep(const Json& object, bool is_deleted) {
  auto seen = seen_.lock();
  // Items of a list of pods have no kind.
  if (value_at(object, {"spec", "containers"}) != nullptr) {
    seen->pods[text_at(object, {"metadata", "name"})] = object;
  } else if (text_at(object, {"metadata", "uid"}) == uid_) {
    seen->is_deleted = is_deleted;
    seen->job = is_deleted ? std::nullopt : std::optional(object);
  }
}

}  // namespace corro::kube
