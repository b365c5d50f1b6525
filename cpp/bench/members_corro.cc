// members_corro: what a coordinator computes when one of 1024 members on 128 hosts is killed, until
// the epoch without it has begun, as one JSON line: all reports are read, all messages written.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "agent/messages.h"
#include "launch/epochs.h"
#include "launch/rank_start.h"

namespace corro {
namespace {

constexpr int kHosts = 128;
constexpr int kRanksOfHost = 8;
constexpr int kMembers = kHosts * kRanksOfHost;

/// Microseconds.
double processor_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  constexpr double kMicro = 1e6;
  constexpr double kNano = 1e-3;
  return kMicro * static_cast<double>(time.tv_sec) + kNano * static_cast<double>(time.tv_nsec);
}

launch::JobFacts job() {
  launch::JobFacts facts;
  facts.ranks = kMembers;
  facts.hosts.resize(kHosts);
  for (int host = 0; host < kHosts; ++host) {
    launch::JobHost& one = facts.hosts[static_cast<size_t>(host)];
    one.name = "host" + std::to_string(host);
    one.first_rank = host * kRanksOfHost;
    one.ranks = kRanksOfHost;
  }
  return facts;
}

/// Each agent gets each message.
size_t write(const launch::Epochs::Orders& orders) {
  size_t bytes = 0;
  for (const agent::Message& message : orders.messages)
    for (int host = 0; host < kHosts; ++host) bytes += encode_message(message).size();
  return bytes;
}

/// As an agent has sent it.
size_t ready(launch::Epochs& members, size_t place, int lost) {
  const agent::Message sent{members.subject(place),
                            agent::ReadyForEpoch{.epoch = 1, .steps = 7, .lost = lost}};
  const Bytes bytes = encode_message(sent);
  const auto read = agent::decode_message(BytesView(bytes).subspan(sizeof(uint32_t)));
  const auto& said = std::get<agent::ReadyForEpoch>(read->body);
  return write(members.ready(*members.place_of(read->about), said.epoch, said.steps, said.lost,
                             monotonic_now()));
}

/// Microseconds; 0 if no epoch has begun.
double change(size_t lost) {
  launch::Epochs members(job(), launch::new_members(wire::digest_of("job"), kMembers),
                         coord::Options{.least = 1});
  const double start = processor_time();
  size_t bytes = write(members.end(lost, false, "rank was killed", false, monotonic_now()));
  for (size_t place = 0; place < kMembers; ++place)
    if (place != lost) bytes += ready(members, place, static_cast<int>(lost));
  const bool has_begun = members.epoch() == 1 && members.size() == kMembers - 1 && bytes > 0;
  return has_begun ? processor_time() - start : 0;
}

}  // namespace
}  // namespace corro

int main() {
  constexpr int kTimes = 9;
  std::vector<double> times;
  for (int i = 0; i < kTimes; ++i) times.push_back(corro::change(static_cast<size_t>(100 * i)));
  std::sort(times.begin(), times.end());
  if (times.front() <= 0) return 1;
  std::printf("{\"members\": %d, \"median_us\": %.1f, \"max_us\": %.1f}\n", corro::kMembers,
              times[kTimes / 2], times.back());
}
