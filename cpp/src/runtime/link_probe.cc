#include "runtime/link_probe.h"

#include <algorithm>
#include <array>
#include <limits>

namespace corro::runtime {
namespace {

/// Far from the tags that programs use.
constexpr uint32_t kProbeTag = std::numeric_limits<uint32_t>::max();
constexpr Duration kBudget = std::chrono::milliseconds(20);
constexpr uint64_t kPingBytes = 8;

Bytes encode(const ProbeRound& round) {
  ByteWriter writer;
  writer.write(round.messages);
  writer.write(round.bytes);
  return writer.take();
}

/// Never zero, which would mean the engine's own deadline.
Duration left_until(Time deadline) {
  return std::max<Duration>(deadline - monotonic_now(), std::chrono::nanoseconds(1));
}

/// Both sides of the rounds. Before each the leader says what comes, and the other side that it is
/// ready for it, so that no message has to wait for its receiver.
class Probe {
 public:
  Probe(Driver& driver, Group& group, int32_t other, Time deadline)
      : driver_(driver),
        group_(group),
        other_(other),
        deadline_(deadline),
        announced_(kProbeRoundBytes),
        answer_(kPingBytes),
        buffer_(ProbeTimes::kLongBytes) {}

  /// On rank 0: the microseconds from the first message to the answer.
  Result<double> time(const ProbeRound& round) {
    announced_ = encode(round);
    CORRO_TRY(run({request(OpKind::kSend, announced_), request(OpKind::kRecv, answer_)}));
    const Time start = monotonic_now();
    std::vector<collective::OpRequest> data = messages(OpKind::kSend, round);
    data.push_back(request(OpKind::kRecv, answer_));
    CORRO_TRY(run(std::move(data)));
    return std::chrono::duration<double, std::micro>(monotonic_now() - start).count();
  }
  Status finish() {
    announced_ = encode({});
    return run({request(OpKind::kSend, announced_)});
  }

  /// On the other rank, until the leader ends it.
  Status answer() {
    while (true) {
      CORRO_TRY(run({request(OpKind::kRecv, announced_)}));
      CORRO_ASSIGN(const ProbeRound round, decode_probe_round(announced_));
      if (round.messages == 0) return {};
      std::vector<collective::OpRequest> data = messages(OpKind::kRecv, round);
      data.push_back(request(OpKind::kSend, answer_));
      CORRO_TRY(run(std::move(data)));
      CORRO_TRY(run({request(OpKind::kSend, answer_)}));
    }
  }

 private:
  Status run(std::vector<collective::OpRequest> requests) {
    const auto work = std::make_shared<WorkState>(std::move(requests));
    driver_.run(group_, work);
    return work->status();
  }

  [[nodiscard]] collective::OpRequest request(OpKind kind, std::span<std::byte> at) const {
    return {.kind = kind,
            .dtype = DType::kU8,
            .root = other_,
            .tag = kProbeTag,
            .input = kind == OpKind::kSend ? at.data() : nullptr,
            .output = kind == OpKind::kRecv ? at.data() : nullptr,
            .count = at.size(),
            .timeout = left_until(deadline_),
            .name = "measures the link"};
  }
  std::vector<collective::OpRequest> messages(OpKind kind, const ProbeRound& round) {
    std::vector<collective::OpRequest> requests;
    for (uint64_t i = 0; i < round.messages; ++i)
      requests.push_back(request(kind, std::span(buffer_).subspan(i * round.bytes, round.bytes)));
    return requests;
  }

  Driver& driver_;
  Group& group_;
  int32_t other_;
  Time deadline_;
  Bytes announced_, answer_, buffer_;
};

/// The least time of up to `rounds` rounds, at least of one; no further ones after `end`.
Result<double> least(Probe& probe, const ProbeRound& round, int rounds, Time end) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i == 0 || (i < rounds && monotonic_now() < end); ++i) {
    CORRO_ASSIGN(const double us, probe.time(round));
    best = std::min(best, us);
  }
  return best;
}

Result<ProbeTimes> take_times(Probe& probe) {
  constexpr int kPings = 32, kRounds = 3;
  const Time start = monotonic_now();
  const Time end = start + kBudget;
  ProbeTimes times;
  CORRO_ASSIGN(times.round_trip, least(probe, {1, kPingBytes}, kPings, start + kBudget / 4));
  CORRO_ASSIGN(times.burst, least(probe, {ProbeTimes::kBurstMessages, kPingBytes}, kRounds,
                                  start + kBudget / 2));
  CORRO_ASSIGN(times.short_bulk, least(probe, {1, ProbeTimes::kShortBytes}, kRounds, end));
  // A slow link gets no megabyte: one of 1 Gbit/s takes 8 ms for it.
  constexpr int64_t kTimesLonger = ProbeTimes::kLongBytes / ProbeTimes::kShortBytes;
  const auto expected =
      std::chrono::microseconds(static_cast<int64_t>(times.short_bulk) * kTimesLonger);
  if (monotonic_now() + expected < end) {
    CORRO_ASSIGN(times.long_bulk, least(probe, {1, ProbeTimes::kLongBytes}, kRounds, end));
  }
  return times;
}

}  // namespace

ProbedRanks probed_ranks(const std::vector<std::string>& hosts) {
  ProbedRanks probed;
  for (size_t r = hosts.size() - 1; r > 0; --r)
    (hosts[r] == hosts[0] ? probed.same_host : probed.other_host) = static_cast<int32_t>(r);
  return probed;
}

std::optional<collective::LinkModel> fit_link(const ProbeTimes& times) {
  constexpr auto kMessages = static_cast<double>(ProbeTimes::kBurstMessages);
  constexpr auto kShort = static_cast<double>(ProbeTimes::kShortBytes);
  constexpr auto kLong = static_cast<double>(ProbeTimes::kLongBytes);
  const double overhead = (times.burst - times.round_trip) / (kMessages - 1);
  const double us_per_byte = times.long_bulk > 0
                                 ? (times.long_bulk - times.short_bulk) / (kLong - kShort)
                                 : (times.short_bulk - times.round_trip) / kShort;
  // Messages one by one cost no less than in a row, and no link carries 100 GB/s.
  constexpr double kLeastUsPerByte = 1e-5;
  const bool sensible = times.round_trip > 0 && overhead > 0 && overhead <= times.round_trip &&
                        us_per_byte >= kLeastUsPerByte;
  if (!sensible) return std::nullopt;
  return collective::LinkModel{.latency_us = std::max(times.round_trip / 2 - overhead, 0.0),
                               .overhead_us = overhead,
                               .us_per_byte = us_per_byte,
                               .measured = true};
}

Result<ProbeRound> decode_probe_round(BytesView bytes) {
  ByteReader reader(bytes);
  const auto messages = reader.read<uint64_t>();
  const auto length = reader.read<uint64_t>();
  if (!length || !reader.done() || *messages > ProbeTimes::kBurstMessages ||
      *length > ProbeTimes::kLongBytes / std::max<uint64_t>(*messages, 1)) {
    return Status(Code::kInvalidArgument, "an impossible round of measuring the link");
  }
  return ProbeRound{*messages, *length};
}

Result<std::optional<collective::LinkModel>> probe_link(Driver& driver, Group& group, int32_t other,
                                                        Time deadline) {
  Probe probe(driver, group, other, deadline);
  CORRO_ASSIGN(const ProbeTimes times, take_times(probe));
  CORRO_TRY(probe.finish());
  return fit_link(times);
}

Status answer_probe(Driver& driver, Group& group, Time deadline) {
  return Probe(driver, group, 0, deadline).answer();
}

Result<collective::SelectionTable> share_selection(Driver& driver, Group& group,
                                                   const collective::SelectionTable& table,
                                                   Time deadline) {
  Bytes bytes = collective::encode(table);
  CORRO_TRY(driver.run(group, {.kind = OpKind::kBroadcast,
                               .dtype = DType::kU8,
                               .input = bytes.data(),
                               .output = bytes.data(),
                               .count = bytes.size(),
                               .timeout = left_until(deadline),
                               .name = "agrees on algorithms"}));
  return collective::decode_selection_table(bytes);
}

}  // namespace corro::runtime
