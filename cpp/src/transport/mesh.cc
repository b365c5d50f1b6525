#include "transport/mesh.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "io/event.h"
#include "io/process.h"
#include "transport/mesh_admission.h"
#include "transport/mesh_dialer.h"
#include "transport/mesh_rendezvous.h"

namespace corro::transport {
namespace {

/// The second half of connect_mesh(): dials the lower ranks, admits the higher ones, watches the
/// local ones.
class Connecting {
 public:
  explicit Connecting(std::unique_ptr<Doors> doors)
      : doors_(std::move(doors)), peers_(static_cast<size_t>(options_.size)) {}

  Result<MeshResult> run();

 private:
  /// Events of watched processes carry kWatch + rank, those of dialers kFirstForeign + rank.
  static constexpr uint64_t kWatch = Admission::kFirstForeign + (1ULL << 62U);

  Status start();
  Status watch(int32_t rank);
  Status step();
  Status handle(uint64_t data, Time now);
  void collect();
  [[nodiscard]] Time next_wake() const;
  [[nodiscard]] std::vector<int32_t> missing() const;
  [[nodiscard]] Status late() const;
  MeshResult finish();

  std::unique_ptr<Doors> doors_;
  const MeshOptions& options_ = doors_->options;
  const Rendezvous& found_ = doors_->found;
  const Time started_ = monotonic_now();
  io::Epoll& epoll_ = doors_->epoll;
  Admission& admission_ = doors_->admission;
  std::map<int32_t, Dialer> dialers_;
  std::vector<io::Fd> watched_;
  std::vector<std::optional<JoinedPeer>> peers_;
};

Status Connecting::start() {
  CORRO_TRY(admission_.start());
  for (int32_t rank = 0; rank < options_.size; ++rank) {
    if (rank == options_.rank) continue;
    const PeerPlace& place = found_.places[static_cast<size_t>(rank)];
    if (place.record.host_id == found_.places[static_cast<size_t>(options_.rank)].record.host_id) {
      CORRO_TRY(watch(rank));
    }
    if (dials(options_.rank, rank)) {
      dialers_.try_emplace(rank, options_, place, rank, epoll_);
    }
  }
  return {};
}

Status ended(const Rendezvous& found, int32_t rank) {
  return {Code::kUnavailable,
          fmt::format("connect: rank {} (pid {}) ended before it was connected", rank,
                      found.places[static_cast<size_t>(rank)].record.pid),
          FailureDetail{.rank = rank, .op = "connect", .phase = "connect"}};
}

Status Connecting::watch(int32_t rank) {
  const int32_t pid = found_.places[static_cast<size_t>(rank)].record.pid;
  if (pid == getpid()) return {};
  auto process = io::open_pidfd(pid);
  if (process.status().code() == Code::kNotFound) return ended(found_, rank);
  if (!process.ok()) return {};  // A kernel without pidfds: the deadline is left.
  CORRO_TRY(epoll_.add(process->get(), EPOLLIN, kWatch + static_cast<uint64_t>(rank)));
  watched_.push_back(std::move(process).value());
  return {};
}

Status Connecting::handle(uint64_t data, Time now) {
  if (data < Admission::kFirstForeign) return admission_.on_event(data, now);
  if (data < kWatch) {
    return dialers_.at(static_cast<int32_t>(data - Admission::kFirstForeign)).on_event(now);
  }
  // A rank that has connected to this one may have finished already: the engine will see it.
  const auto rank = static_cast<int32_t>(data - kWatch);
  if (!peers_[static_cast<size_t>(rank)]) return ended(found_, rank);
  return {};
}

Status Connecting::step() {
  std::array<epoll_event, 64> events{};
  const Duration timeout = std::max(Duration::zero(), next_wake() - monotonic_now());
  CORRO_ASSIGN(const size_t count, epoll_.wait(events, timeout));
  const Time now = monotonic_now();
  // Connections first: a rank that was killed after it connected is not missing.
  std::ranges::sort(std::span(events).first(count), {},
                    [](const epoll_event& event) { return event.data.u64; });
  for (const epoll_event& event : std::span(events).first(count)) {
    // With a full batch something that a dead rank had sent before may still wait behind.
    if (event.data.u64 >= kWatch && count == events.size()) break;
    CORRO_TRY(handle(event.data.u64, now));
    collect();
  }
  admission_.expire(now);
  return {};
}

void Connecting::collect() {
  for (JoinedPeer& joined : admission_.take_joined()) {
    if (joined.liveness.valid()) {
      doors_->early.push_back(std::move(joined));
      continue;
    }
    // A rank that dials again has given its earlier connection up.
    peers_[static_cast<size_t>(joined.rank)] = std::move(joined);
  }
  for (auto& [rank, dialer] : dialers_) {
    if (auto joined = dialer.take_joined()) peers_[static_cast<size_t>(rank)] = std::move(joined);
  }
}

Time Connecting::next_wake() const {
  Time wake = std::min(
      {options_.deadline, admission_.next_expiry(), monotonic_now() + wire::kInterruptPause});
  for (const auto& [rank, dialer] : dialers_) wake = std::min(wake, dialer.next_start());
  return wake;
}

std::vector<int32_t> Connecting::missing() const {
  std::vector<int32_t> ranks;
  for (int32_t rank = 0; rank < options_.size; ++rank) {
    if (rank != options_.rank && !peers_[static_cast<size_t>(rank)]) ranks.push_back(rank);
  }
  return ranks;
}

Status Connecting::late() const {
  const std::vector<int32_t> ranks = missing();
  const auto dialer = dialers_.find(ranks.front());
  const std::string why = dialer == dialers_.end()
                              ? fmt::format("rank {} has not connected to this one", ranks.front())
                              : fmt::format("rank {}: {}", ranks.front(), dialer->second.reason());
  const double seconds = std::chrono::duration<double>(monotonic_now() - started_).count();
  return {Code::kDeadlineExceeded,
          fmt::format("connect: rank {} of {} waited {:.1f} s and is not connected to {}; {}",
                      options_.rank, options_.size, seconds, list_ranks(ranks), why),
          FailureDetail{.rank = ranks.front(), .op = "connect", .phase = "connect"}};
}

MeshResult Connecting::finish() {
  MeshResult result;
  result.handshakes_refused = admission_.refused();
  for (int32_t rank = 0; rank < options_.size; ++rank) {
    const PeerPlace& place = found_.places[static_cast<size_t>(rank)];
    MeshPeer& peer = result.peers.emplace_back();
    peer.rank = rank;
    peer.pid = place.record.pid;
    peer.host_id = place.record.host_id;
    peer.local = !place.over_tcp;
    if (rank == options_.rank) continue;
    JoinedPeer& joined = *peers_[static_cast<size_t>(rank)];
    peer.stream = std::move(joined.stream);
    peer.descriptors = std::move(joined.descriptors);
  }
  doors_->options.bootstrap = nullptr;  // Not for longer than this call.
  doors_->options.shared_descriptors.clear();
  result.doors = std::move(doors_);
  return result;
}

Result<MeshResult> Connecting::run() {
  CORRO_TRY(start());
  while (!missing().empty()) {
    const Time now = monotonic_now();
    if (now >= options_.deadline) return late();
    for (auto& [rank, dialer] : dialers_) CORRO_TRY(dialer.start_if_due(now));
    CORRO_TRY(step());
    CORRO_TRY(options_.bootstrap->check_interrupted());
  }
  return finish();
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
  CORRO_CHECK(options.shared_descriptors.size() < io::kMaxPassedDescriptors,
              options.shared_descriptors.size());
  if (options.size == 1) {
    MeshResult alone;
    alone.peers.push_back(
        {.rank = 0,
         .pid = getpid(),
         .host_id = options.host_id.empty() ? io::boot_host_id() : options.host_id,
         .local = true,
         .stream = nullptr,
         .descriptors = {}});
    return alone;
  }
  CORRO_ASSIGN(Rendezvous found, rendezvous(options));
  CORRO_ASSIGN(io::Epoll epoll, io::Epoll::create());
  return Connecting(std::make_unique<Doors>(options, std::move(found), std::move(epoll))).run();
}

}  // namespace corro::transport
