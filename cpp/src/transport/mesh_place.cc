#include "transport/mesh_place.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "io/process.h"
#include "transport/joining.h"
#include "wire/digest.h"

namespace corro::transport {
namespace {

std::string key_of(const MeshOptions& options, std::string_view what, int32_t rank) {
  constexpr size_t kLongestJob = 64;
  const std::string job =
      options.job.size() <= kLongestJob ? options.job : wire::to_hex(wire::digest_of(options.job));
  return fmt::format("{}/{}/{}", job, what, rank);
}

/// The word around the first byte in which two texts differ.
std::string_view differing_word(std::string_view text, std::string_view other) {
  const auto at = static_cast<size_t>(std::ranges::mismatch(text, other).in1 - text.begin());
  const size_t begin = text.substr(0, at).rfind(' ') + 1;  // 0 if there is no blank
  return text.substr(begin, text.find(' ', at) - begin);
}

Result<io::Fd> listen_on_tcp(const MeshOptions& options) {
  CORRO_ASSIGN(const auto address, io::SocketAddress::parse_listen(options.listen_address));
  return io::listen_tcp(address);
}

}  // namespace

Result<PeerPlace> place_of(int32_t rank, BytesView record) {
  const std::string context = fmt::format("connect: rank {}", rank);
  auto read = wire::decode_peer_record(record);
  if (!read.ok()) return read.status().with_context(context);
  PeerPlace place{.record = std::move(*read), .tcp = std::nullopt};
  if (place.record.tcp.empty()) return place;
  auto address = io::SocketAddress::parse(place.record.tcp);
  if (!address.ok()) return address.status().with_context(context + ": TCP address");
  place.tcp = *address;
  return place;
}

Result<Doors> open_doors(const MeshOptions& options) {
  Doors doors{
      .unix_listener = {},
      .tcp_listener = {},
      .record = {.pid = getpid(),
                 .host_id = options.host_id.empty() ? io::boot_host_id() : options.host_id,
                 .unix_name = fmt::format("corro-rank-{}-{}", options.rank, wire::random_hex(12)),
                 .settings = fmt::format("ranks={} {}", options.size, options.settings)}};
  if (doors.record.host_id.size() > wire::kMaxHostId)
    doors.record.host_id = wire::to_hex(wire::digest_of(doors.record.host_id));
  CORRO_ASSIGN(doors.unix_listener, io::listen_abstract(doors.record.unix_name));
  const bool over_tcp = options.local == LocalTransport::kTcp || !options.one_host;
  if (!over_tcp || !options.secret) return doors;
  auto listener = listen_on_tcp(options);
  if (!listener.ok())
    return listener.status().with_context("CORRO_LISTEN=" + options.listen_address);
  doors.tcp_listener = std::move(*listener);
  CORRO_ASSIGN(const io::SocketAddress here, io::local_address(doors.tcp_listener.get()));
  doors.record.tcp = here.to_string();
  return doors;
}

std::string record_key(const MeshOptions& options, int32_t rank) {
  return key_of(options, "rank", rank);
}

std::string failure_key(const MeshOptions& options, int32_t rank) {
  return key_of(options, "failed", rank);
}

wire::HandshakeIdentity identity_of(const MeshOptions& options) {
  return {
      .job = wire::digest_of(options.job), .epoch = 0, .rank = options.rank, .size = options.size};
}

Status no_secret(const MeshOptions& options, const std::vector<int32_t>& over_tcp) {
  return {Code::kFailedPrecondition,
          fmt::format("connect: rank {} reaches {} over TCP, and this job has no secret: start it "
                      "with `corro run`, or set CORRO_SECRET_FILE to a file (chmod 600) with the "
                      "same 64 hexadecimal digits for every rank",
                      options.rank, list_ranks(over_tcp))};
}

Status check_settings(int32_t rank, const std::string& settings, const std::string& of_rank_zero) {
  if (settings == of_rank_zero) return {};
  return {Code::kInvalidArgument,
          fmt::format("connect: {} on rank {}, {} on rank 0: expected the same on all ranks",
                      differing_word(settings, of_rank_zero), rank,
                      differing_word(of_rank_zero, settings))};
}

}  // namespace corro::transport
