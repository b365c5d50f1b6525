#include "runtime/link_probe.h"

#include <algorithm>
#include <array>
#include <limits>

namespace corro::runtime {
namespace {

/// Far from the tags that programs use.
constexpr uint32_t kProbeTag = std::numeric_limits<uint32_t>::max();
constexpr Duration kBudget = std::chrono::milliseconds(20);
constexpr int kPings = 32, kBursts = 3, kBulks = 3;
constexpr uint64_t kPingBytes = 8, kBurstMessages = 32;
constexpr uint64_t kFirstBulkBytes = 64U << 10U, kBulkBytes = 1U << 20U;

/// One round: `messages` of `bytes` each, and an answer. No messages: the end.
struct Round {
  uint64_t messages = 0;
  uint64_t bytes = 0;
};

/// Both sides of the rounds. Before each the leader says what comes, and the other side that it is
/// ready for it, so that no message has to wait for its receiver.
class Probe {
 public:
  Probe(Driver& driver, Group& group, int32_t other, Duration timeout)
      : driver_(driver),
        group_(group),
        other_(other),
        timeout_(timeout),
        buffer_(std::max(kBulkBytes, kBurstMessages * kPingBytes)) {}

  /// On rank 0: the microseconds from the first message to the answer.
  Result<double> time(Round round) {
    CORRO_TRY(announce(round));
    const Time start = monotonic_now();
    std::vector<collective::OpRequest> data = messages(OpKind::kSend, round);
    data.push_back(small(OpKind::kRecv, answer_));
    CORRO_TRY(run(std::move(data)));
    return std::chrono::duration<double, std::micro>(monotonic_now() - start).count();
  }
  Status finish() {
    announced_ = {};
    return run({small(OpKind::kSend, announced_)});
  }

  /// On the other rank, until the leader ends it.
  Status answer() {
    while (true) {
      CORRO_TRY(run({small(OpKind::kRecv, announced_)}));
      const Round round = announced_;
      if (round.messages == 0) return {};
      if (round.messages > kBurstMessages || round.bytes > buffer_.size() / round.messages) {
        return {Code::kDataLoss, "rank 0 announced an impossible round of measuring the link"};
      }
      std::vector<collective::OpRequest> data = messages(OpKind::kRecv, round);
      data.push_back(small(OpKind::kSend, answer_));
      CORRO_TRY(run(std::move(data)));
      CORRO_TRY(run({small(OpKind::kSend, answer_)}));
    }
  }

 private:
  Status announce(Round round) {
    announced_ = round;
    return run({small(OpKind::kSend, announced_), small(OpKind::kRecv, answer_)});
  }

  Status run(std::vector<collective::OpRequest> requests) {
    const auto work = std::make_shared<WorkState>(std::move(requests));
    driver_.run(group_, work);
    return work->status();
  }

  [[nodiscard]] collective::OpRequest request(OpKind kind, std::byte* at, uint64_t bytes) const {
    return {.kind = kind,
            .dtype = DType::kU8,
            .root = other_,
            .tag = kProbeTag,
            .input = kind == OpKind::kSend ? at : nullptr,
            .output = kind == OpKind::kRecv ? at : nullptr,
            .count = bytes,
            .timeout = timeout_};
  }
  template <typename Value>
  collective::OpRequest small(OpKind kind, Value& value) const {
    return request(kind, reinterpret_cast<std::byte*>(&value), sizeof value);
  }
  std::vector<collective::OpRequest> messages(OpKind kind, Round round) {
    std::vector<collective::OpRequest> requests;
    for (uint64_t i = 0; i < round.messages; ++i)
      requests.push_back(request(kind, buffer_.data() + i * round.bytes, round.bytes));
    return requests;
  }

  Driver& driver_;
  Group& group_;
  int32_t other_;
  Duration timeout_;
  Bytes buffer_;
  Round announced_;
  uint64_t answer_ = 0;
};

/// The median of times, which it sorts.
double median(std::vector<double>& times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/// The least time of some rounds, fewer once the budget is spent.
Result<double> least(Probe& probe, Round round, int rounds, Time end) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < rounds; ++i) {
    CORRO_ASSIGN(const double us, probe.time(round));
    best = std::min(best, us);
    if (monotonic_now() >= end) break;
  }
  return best;
}

Result<collective::LinkModel> lead(Probe& probe) {
  const Time start = monotonic_now();
  std::vector<double> round_trips;
  for (int i = 0; i < kPings && monotonic_now() - start < kBudget / 4; ++i) {
    CORRO_ASSIGN(const double us, probe.time({1, kPingBytes}));
    round_trips.push_back(us);
  }
  const double round_trip = median(round_trips);
  CORRO_ASSIGN(const double burst,
               least(probe, {kBurstMessages, kPingBytes}, kBursts, start + kBudget / 2));
  // A slow link gets no megabyte: one of 1 Gbit/s takes 8 ms for it.
  const Time end = start + kBudget;
  Round bulk{1, kFirstBulkBytes};
  CORRO_ASSIGN(double us, least(probe, bulk, kBulks, end));
  constexpr int64_t kTimesLarger = kBulkBytes / kFirstBulkBytes;
  const auto expected = std::chrono::microseconds(static_cast<int64_t>(us) * kTimesLarger);
  if (monotonic_now() + expected < end) {
    bulk.bytes = kBulkBytes;
    CORRO_ASSIGN(us, least(probe, bulk, kBulks, end));
  }
  CORRO_TRY(probe.finish());
  constexpr double kLeastUs = 0.01, kLeastUsPerByte = 1e-6;  // Above what clocks make of nothing.
  const double overhead =
      std::max((burst - round_trip) / static_cast<double>(kBurstMessages - 1), kLeastUs);
  return collective::LinkModel{
      .latency_us = std::max(round_trip / 2 - overhead, kLeastUs),
      .overhead_us = overhead,
      .us_per_byte =
          std::max((us - round_trip) / static_cast<double>(bulk.bytes), kLeastUsPerByte)};
}

}  // namespace

int32_t probed_rank(const std::vector<std::string>& hosts) {
  const auto elsewhere =
      std::find_if(hosts.begin(), hosts.end(), [&](const auto& host) { return host != hosts[0]; });
  return elsewhere == hosts.end() ? 1 : static_cast<int32_t>(elsewhere - hosts.begin());
}

Result<collective::LinkModel> probe_link(Driver& driver, Group& group, int32_t other,
                                         Duration timeout) {
  const bool leads = group.rank == 0;
  Probe probe(driver, group, leads ? other : 0, timeout);
  if (leads) return lead(probe);
  CORRO_TRY(probe.answer());
  return collective::LinkModel{};
}

Result<collective::SelectionTable> share_selection(Driver& driver, Group& group,
                                                   const collective::SelectionTable& table,
                                                   Duration timeout) {
  Bytes bytes = collective::encode(table);
  CORRO_TRY(driver.run(group, {.kind = OpKind::kBroadcast,
                               .dtype = DType::kU8,
                               .input = bytes.data(),
                               .output = bytes.data(),
                               .count = bytes.size(),
                               .timeout = timeout}));
  return collective::decode_selection_table(bytes);
}

}  // namespace corro::runtime
