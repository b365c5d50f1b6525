#include "transport/mesh.h"

#include <fmt/format.h>
#include <unistd.h>

#include <poll.h>
#include <algorithm>
#include <numeric>
#include <utility>

#include "io/process.h"
#include "io/socket.h"
#include "transport/connector.h"

namespace corro::transport {
namespace {

/// So long a rank waits for one key of the bootstrap before it looks at what else has happened.
constexpr Duration kAskPatience = std::chrono::milliseconds(5);
/// The same after a while without anything new.
constexpr Duration kMostPatience = std::chrono::milliseconds(40);

/// Drives the introductions of a Connector: looks for records in the bootstrap, and sleeps.
class Connecting {
 public:
  Connecting(Connector& connector, wire::Bootstrap& bootstrap)
      : connector_(connector), bootstrap_(bootstrap) {}

  Status run();

 private:
  Status ask_all();
  Status ask(int32_t rank, Duration patience);
  Status explain(const Status& failure);
  void sleep();

  Connector& connector_;
  wire::Bootstrap& bootstrap_;
  std::vector<int32_t> asks_;  ///< Records that are looked for.
  Duration patience_ = kAskPatience;
};

Status Connecting::run() {
  Introductions& introductions = connector_.introductions();
  while (true) {
    CORRO_TRY(bootstrap_.check_interrupted());
    CORRO_TRY(ask_all());
    connector_.poll(monotonic_now());
    if (introductions.over()) return explain(introductions.failure());
    if (asks_.empty()) sleep();
  }
}

Status Connecting::ask_all() {
  const std::vector<int32_t> more = connector_.introductions().take_asks();
  for (const int32_t rank : more) {
    if (std::ranges::find(asks_, rank) == asks_.end()) asks_.push_back(rank);
  }
  const std::vector<int32_t> asked = std::exchange(asks_, {});
  Duration patience = patience_;
  for (const int32_t rank : asked) {
    CORRO_TRY(ask(rank, std::exchange(patience, Duration::zero())));
  }
  patience_ = asks_.size() < asked.size() ? kAskPatience : std::min(2 * patience_, kMostPatience);
  return {};
}

Status Connecting::ask(int32_t rank, Duration patience) {
  const auto record =
      bootstrap_.get(record_key(connector_.options(), rank), monotonic_now() + patience);
  if (record.ok()) {
    connector_.introductions().found(rank, *record, monotonic_now());
  } else if (record.status().code() == Code::kNotFound) {
    connector_.introductions().gone(
        rank, {Code::kUnavailable, "connect: " + record.status().message(),
               FailureDetail{.rank = rank, .op = "connect", .phase = "rendezvous"}});
  } else if (record.status().code() == Code::kDeadlineExceeded) {
    asks_.push_back(rank);
  } else {
    return record.status().with_context("connect");
  }
  return {};
}

/// A rank that has ended may have left its reason; the own one is left for others.
Status Connecting::explain(const Status& failure) {
  if (failure.ok()) return failure;
  Status why = failure;
  const int32_t culprit = failure.detail() ? failure.detail()->rank : -1;
  if (failure.code() == Code::kUnavailable && culprit >= 0) {
    const auto left =
        bootstrap_.get(failure_key(connector_.options(), culprit), monotonic_now() + kAskPatience);
    const auto read = left.ok() ? wire::decode_joining_failure(*left) : left.status();
    if (read.ok()) {
      why = {read->code, read->text,
             FailureDetail{.rank = read->culprit, .op = "connect", .phase = "connect"}};
    }
  }
  (void)bootstrap_.put(
      failure_key(connector_.options(), connector_.options().rank),
      wire::encode_joining_failure({.code = why.code(),
                                    .culprit = why.detail() ? why.detail()->rank : -1,
                                    .text = why.message()}));
  return why;
}

void Connecting::sleep() {
  const Time until = std::min(connector_.next_wake(), monotonic_now() + wire::kInterruptPause);
  (void)io::wait_ready(connector_.poll_fd(), POLLIN, until);
}

std::string where_is(const Connector& connector, int32_t rank) {
  const PeerPlace& place = connector.place(rank);
  if (connector.is_local(rank) || !place.tcp) return fmt::format("pid {}", place.record.pid);
  return "tcp " + place.tcp->to_string();
}

MeshResult finish(std::unique_ptr<Connector> connector) {
  MeshResult result;
  for (int32_t rank = 0; rank < connector->options().size; ++rank) {
    const wire::PeerRecord& record = connector->place(rank).record;
    result.peers.push_back({.rank = rank,
                            .pid = record.pid,
                            .host_id = record.host_id,
                            .where = where_is(*connector, rank),
                            .local = connector->is_local(rank),
                            .descriptors = connector->introductions().take_descriptors(rank)});
  }
  connector->finish_joining();
  result.connector = std::move(connector);
  return result;
}

/// Over TCP alone, nobody could reach anybody without a secret.
Status check_secret(const MeshOptions& options) {
  if (options.secret || options.local != LocalTransport::kTcp) return {};
  std::vector<int32_t> others(static_cast<size_t>(options.size));
  std::iota(others.begin(), others.end(), 0);
  std::erase(others, options.rank);
  return no_secret(options, others);
}

}  // namespace

MeshResult::MeshResult() = default;
MeshResult::MeshResult(MeshResult&&) noexcept = default;
MeshResult& MeshResult::operator=(MeshResult&&) noexcept = default;
MeshResult::~MeshResult() = default;

Result<MeshResult> connect_mesh(const MeshOptions& options) {
  CORRO_CHECK(options.size >= 1 && options.rank >= 0 && options.rank < options.size, options.rank,
              options.size);
  CORRO_CHECK(options.size == 1 || options.bootstrap != nullptr, options.size);
  CORRO_CHECK(options.shared_descriptors.size() <= wire::kMostDescriptorsEach,
              options.shared_descriptors.size());
  if (options.size == 1) {
    MeshResult alone;
    alone.peers.push_back(
        {.rank = 0,
         .pid = getpid(),
         .host_id = options.host_id.empty() ? io::boot_host_id() : options.host_id,
         .where = "this process",
         .local = true,
         .descriptors = {}});
    return alone;
  }
  CORRO_TRY(check_secret(options));
  const Time started = monotonic_now();
  CORRO_ASSIGN(Doors doors, open_doors(options));
  const Status put = options.bootstrap->put(record_key(options, options.rank),
                                            wire::encode_peer_record(doors.record));
  if (put.code() == Code::kAlreadyExists) {
    return put.with_context(fmt::format(
        "connect: is another process rank {} of this job? So is one after it ran itself again",
        options.rank));
  }
  CORRO_TRY(put);
  CORRO_ASSIGN(auto connector, Connector::create(options, std::move(doors), started));
  CORRO_TRY(Connecting(*connector, *options.bootstrap).run());
  return finish(std::move(connector));
}

}  // namespace corro::transport
