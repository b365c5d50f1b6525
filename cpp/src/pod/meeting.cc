#include "pod/meeting.h"

#include <fmt/format.h>

namespace corro::pod {
namespace {

/// The agent is not told how many there are; ranks say their numbers to each other.
constexpr int32_t kMostRanks = 1 << 16;

}  // namespace

void Meeting::open(const wire::Secret& secret) {
  for (const agent::Record& record : own_) say_(record);
  if (service_ != nullptr) return;
  auto service = wire::AgentService::create(
      {.job = {},
       .secret = secret,
       .size = kMostRanks,
       .name = wire::pod_service_name(job_uid_),
       .on_hello = {},
       .on_put = [this](const std::string& key, const Bytes& value) {
         say_(own_.emplace_back(agent::Record{.key = key, .value = value}));
       }});
  // Two pods of a job on one host's network: one serves the ranks of both.
  if (service.status().code() == Code::kAlreadyExists) return;
  if (!service.ok()) {
    fmt::print(stderr, "corro agent: ranks cannot meet here: {}\n", service.status().message());
    return;
  }
  service_ = std::move(*service);
  (void)loop_.watch(service_->poll_fd(), EPOLLIN, [this] { poll(); });
}

void Meeting::supply(const agent::Record& record) {
  if (service_ != nullptr) service_->supply(record.key, record.value);
}

void Meeting::poll() {
  const Status polled = service_->poll();
  if (polled.ok()) return;
  fmt::print(stderr, "corro agent: ranks cannot meet here any more: {}\n", polled.message());
  loop_.forget(service_->poll_fd());
  service_.reset();
}

}  // namespace corro::pod
