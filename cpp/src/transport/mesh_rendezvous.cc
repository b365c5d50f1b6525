#include "transport/mesh_rendezvous.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "io/process.h"
#include "wire/digest.h"

namespace corro::transport {
namespace {

std::string key_of(const MeshOptions& options, std::string_view what, int32_t rank) {
  constexpr size_t kLongestJob = 64;
  const std::string job =
      options.job.size() <= kLongestJob ? options.job : wire::to_hex(wire::digest_of(options.job));
  return fmt::format("{}/{}/{}", job, what, rank);
}

/// What the rank has written, as soon as it has.
Result<Bytes> get(const MeshOptions& options, std::string_view what, int32_t rank) {
  auto found = options.bootstrap->get(key_of(options, what, rank), options.deadline);
  if (found.status().code() != Code::kNotFound) return found;
  return Status(Code::kUnavailable, fmt::format("rank {} ended before it had joined the job", rank),
                FailureDetail{.rank = rank, .op = "connect", .phase = "rendezvous"});
}

Status put(const MeshOptions& options, std::string_view what, BytesView value) {
  Status done = options.bootstrap->put(key_of(options, what, options.rank), value);
  if (done.code() != Code::kAlreadyExists) return done;
  return done.with_context(
      fmt::format("connect: is another process rank {} of this job?", options.rank));
}

/// Asks for the records of the ranks after `first` once more, without patience.
std::vector<int32_t> missing_from(const MeshOptions& options, int32_t first) {
  constexpr int32_t kMostAsked = 64;
  std::vector<int32_t> missing = {first};
  const int32_t end = std::min(options.size, first + kMostAsked);
  for (int32_t rank = first + 1; rank < end; ++rank) {
    const Time moment = monotonic_now() + std::chrono::milliseconds(20);
    if (!options.bootstrap->get(key_of(options, "rank", rank), moment).ok()) {
      missing.push_back(rank);
    }
  }
  return missing;
}

/// The word around the first byte in which two texts differ.
std::string_view differing_word(std::string_view text, std::string_view other) {
  const auto at = static_cast<size_t>(std::ranges::mismatch(text, other).in1 - text.begin());
  const size_t begin = text.substr(0, at).rfind(' ') + 1;  // 0 if there is no blank
  return text.substr(begin, text.find(' ', at) - begin);
}

Status check_settings(int32_t rank, const std::string& settings, const std::string& of_rank_zero) {
  if (settings == of_rank_zero) return {};
  return {Code::kInvalidArgument,
          fmt::format("connect: {} on rank {}, {} on rank 0: expected the same on all ranks",
                      differing_word(settings, of_rank_zero), rank,
                      differing_word(of_rank_zero, settings))};
}

Result<std::vector<PeerPlace>> gather(const MeshOptions& options, Time started) {
  std::vector<PeerPlace> places(static_cast<size_t>(options.size));
  for (int32_t rank = 0; rank < options.size; ++rank) {
    const auto bytes = get(options, "rank", rank);
    if (bytes.status().code() == Code::kDeadlineExceeded) {
      const auto seconds = std::chrono::duration<double>(monotonic_now() - started).count();
      return Status(
          Code::kDeadlineExceeded,
          fmt::format("connect: rank {} of {} waited {:.1f} s, but {} did not start: are "
                      "all ranks running, with the same job and bootstrap?",
                      options.rank, options.size, seconds, list_ranks(missing_from(options, rank))),
          FailureDetail{.rank = rank, .op = "connect", .phase = "rendezvous"});
    }
    if (!bytes.ok()) return bytes.status().with_context("connect");
    auto record = wire::decode_peer_record(*bytes);
    if (!record.ok()) return record.status().with_context(fmt::format("connect: rank {}", rank));
    places[static_cast<size_t>(rank)].record = std::move(record).value();
    CORRO_TRY(check_settings(rank, places[static_cast<size_t>(rank)].record.settings,
                             places[0].record.settings));
  }
  return places;
}

/// Says which ranks are reached over TCP; every pair of ranks decides the same.
std::vector<int32_t> choose_transports(const MeshOptions& options, std::vector<PeerPlace>& places) {
  const std::string& own_host = places[static_cast<size_t>(options.rank)].record.host_id;
  std::vector<int32_t> over_tcp;
  for (int32_t rank = 0; rank < options.size; ++rank) {
    PeerPlace& place = places[static_cast<size_t>(rank)];
    if (rank == options.rank) continue;
    place.over_tcp = options.local == LocalTransport::kTcp || place.record.host_id != own_host;
    if (place.over_tcp) over_tcp.push_back(rank);
  }
  return over_tcp;
}

Result<io::Fd> listen_on_tcp(const MeshOptions& options) {
  CORRO_ASSIGN(const auto address, io::SocketAddress::parse_listen(options.listen_address));
  auto listener = io::listen_tcp(address);
  if (!listener.ok())
    return listener.status().with_context("CORRO_LISTEN=" + options.listen_address);
  return listener;
}

/// Exchanges TCP addresses with the ranks that need them.
Status exchange_tcp(const MeshOptions& options, const std::vector<int32_t>& over_tcp,
                    Rendezvous& found) {
  CORRO_ASSIGN(found.tcp_listener, listen_on_tcp(options));
  CORRO_ASSIGN(const io::SocketAddress here, io::local_address(found.tcp_listener.get()));
  const std::string text = here.to_string();
  CORRO_TRY(put(options, "tcp", std::as_bytes(std::span(text))));
  const std::string& own_host = found.places[static_cast<size_t>(options.rank)].record.host_id;
  for (const int32_t rank : over_tcp) {
    const PeerPlace& place = found.places[static_cast<size_t>(rank)];
    // For liveness a rank may have to dial any rank of another host.
    if (!dials(options.rank, rank) && place.record.host_id == own_host) continue;
    const auto bytes = get(options, "tcp", rank);
    const std::string context = fmt::format("connect: TCP address of rank {}", rank);
    if (!bytes.ok()) return bytes.status().with_context(context);
    auto address =
        io::SocketAddress::parse({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
    if (!address.ok()) return address.status().with_context(context);
    found.places[static_cast<size_t>(rank)].tcp = *address;
  }
  return {};
}

}  // namespace

wire::HandshakeIdentity identity_of(const MeshOptions& options) {
  return {
      .job = wire::digest_of(options.job), .epoch = 0, .rank = options.rank, .size = options.size};
}

std::string list_ranks(const std::vector<int32_t>& ranks) {
  constexpr size_t kMostNamed = 8;
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  const bool all = ranks.size() <= kMostNamed;
  const size_t before_and = all ? ranks.size() - 1 : kMostNamed;
  const auto end = ranks.begin() + static_cast<std::ptrdiff_t>(before_and);
  const std::string named = fmt::format("ranks {}", fmt::join(ranks.begin(), end, ", "));
  if (all) return fmt::format("{} and {}", named, ranks.back());
  return fmt::format("{} and {} more", named, ranks.size() - kMostNamed);
}

Result<Rendezvous> rendezvous(const MeshOptions& options) {
  const Time started = monotonic_now();
  Rendezvous found;
  wire::PeerRecord own{
      .pid = getpid(),
      .host_id = options.host_id.empty() ? io::boot_host_id() : options.host_id,
      .unix_name = fmt::format("corro-rank-{}-{}", options.rank, wire::random_hex(12)),
      .settings = fmt::format("ranks={} {}", options.size, options.settings)};
  if (own.host_id.size() > wire::kMaxHostId)
    own.host_id = wire::to_hex(wire::digest_of(own.host_id));
  CORRO_ASSIGN(found.unix_listener, io::listen_abstract(own.unix_name));
  CORRO_TRY(put(options, "rank", wire::encode_peer_record(own)));
  CORRO_ASSIGN(found.places, gather(options, started));
  const std::vector<int32_t> over_tcp = choose_transports(options, found.places);
  if (over_tcp.empty()) return found;
  if (!options.secret) {
    return Status(
        Code::kFailedPrecondition,
        fmt::format("connect: rank {} reaches {} over TCP, and this job has no secret: start "
                    "it with `corro run`, or set CORRO_SECRET_FILE to a file (chmod 600) "
                    "with the same 64 hexadecimal digits for every rank",
                    options.rank, list_ranks(over_tcp)));
  }
  CORRO_TRY(exchange_tcp(options, over_tcp, found));
  return found;
}

}  // namespace corro::transport
