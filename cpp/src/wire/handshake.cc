#include "wire/handshake.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <cstring>

#include "io/random.h"

namespace corro::wire {
namespace {

constexpr uint16_t kHandshakeVersion = 2;
constexpr uint64_t kHelloMagic = 0x31736F72726F63C7;       // C7 "corros1"
constexpr uint64_t kLocalHelloMagic = 0x316C6F72726F63C7;  // C7 "corrol1"
/// Different labels of one length, so that no proof of one side is ever a proof of the other.
constexpr std::string_view kServerLabel = "corro server 1: ";
constexpr std::string_view kClientLabel = "corro client 1: ";
static_assert(kServerLabel.size() == kClientLabel.size());

using Proof = std::array<std::byte, kProofBytes>;
static_assert(kProofBytes == crypto_auth_hmacsha256_BYTES);
static_assert(sizeof(Secret) == crypto_auth_hmacsha256_KEYBYTES);

struct RawHelloLayout {
  uint64_t magic = kHelloMagic;
  uint16_t version = kHandshakeVersion;
  uint16_t purpose = 0;
  uint32_t epoch = 0;
  Digest job{};
  int32_t from = -1;
  int32_t to = -1;
  Nonce nonce{};
};
static_assert(sizeof(RawHelloLayout) == kHelloBytes);

struct RawLocalHelloLayout {
  uint64_t magic = kLocalHelloMagic;
  uint16_t version = kHandshakeVersion;
  uint16_t purpose = 0;
  uint32_t epoch = 0;
  Digest job{};
  int32_t from = -1;
  int32_t to = -1;
  uint32_t descriptors = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(RawLocalHelloLayout) == kLocalHelloBytes);

/// HMAC-SHA256(secret, label | hello | nonce of the server).
struct Transcript {
  Bytes bytes;
  Transcript(std::string_view label, const RawHello& hello, BytesView server_nonce) {
    const auto text = std::as_bytes(std::span(label));
    bytes.insert(bytes.end(), text.begin(), text.end());
    bytes.insert(bytes.end(), hello.begin(), hello.end());
    bytes.insert(bytes.end(), server_nonce.begin(), server_nonce.end());
  }
  [[nodiscard]] const unsigned char* data() const {
    return reinterpret_cast<const unsigned char*>(bytes.data());
  }
};

const unsigned char* key_of(const Secret& secret) {
  return reinterpret_cast<const unsigned char*>(secret.data());
}

Proof prove(const Transcript& transcript, const Secret& secret) {
  Proof proof{};
  crypto_auth_hmacsha256(reinterpret_cast<unsigned char*>(proof.data()), transcript.data(),
                         transcript.bytes.size(), key_of(secret));
  return proof;
}

/// Compares in constant time.
bool proven(const Transcript& transcript, BytesView proof, const Secret& secret) {
  const auto* raw = reinterpret_cast<const unsigned char*>(proof.data());
  return crypto_auth_hmacsha256_verify(raw, transcript.data(), transcript.bytes.size(),
                                       key_of(secret)) == 0;
}

void append(Bytes& to, BytesView bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

}  // namespace

RawHello encode_hello(const Hello& hello) {
  RawHelloLayout layout;
  layout.purpose = static_cast<uint16_t>(hello.purpose);
  layout.epoch = hello.epoch;
  layout.job = hello.job;
  layout.from = hello.from;
  layout.to = hello.to;
  layout.nonce = hello.nonce;
  RawHello raw;
  std::memcpy(raw.data(), &layout, raw.size());
  return raw;
}

Result<Hello> decode_hello(std::span<const std::byte, kHelloBytes> raw) {
  RawHelloLayout layout;
  std::memcpy(&layout, raw.data(), raw.size());
  if (layout.magic != kHelloMagic || layout.purpose >= kPurposes) {
    return Status(Code::kInvalidArgument, "handshake: not a hello of corro");
  }
  if (layout.version != kHandshakeVersion) {
    return Status(Code::kInvalidArgument, fmt::format("handshake: version {}, expected {}",
                                                      layout.version, kHandshakeVersion));
  }
  return Hello{.purpose = static_cast<Purpose>(layout.purpose),
               .epoch = layout.epoch,
               .job = layout.job,
               .from = layout.from,
               .to = layout.to,
               .nonce = layout.nonce};
}

bool HandshakeBuffer::collect(BytesView bytes) {
  CORRO_CHECK(!bytes.empty() && bytes.size() <= wanted(), bytes.size(), wanted());
  append(bytes_, bytes);
  return wanted() == 0;
}

Bytes HandshakeBuffer::take(size_t next_wanted) {
  wanted_ = next_wanted;
  return std::exchange(bytes_, {});
}

ClientHandshake::ClientHandshake(const HandshakeIdentity& identity, int32_t server_rank,
                                 const Secret& secret, Purpose purpose)
    : secret_(secret) {
  Hello hello{.purpose = purpose,
              .epoch = identity.epoch,
              .job = identity.job,
              .from = identity.rank,
              .to = server_rank};
  io::fill_random(hello.nonce);
  hello_ = encode_hello(hello);
  append(output_, hello_);
}

Status ClientHandshake::feed(BytesView bytes) {
  if (!in_.collect(bytes)) return {};
  if (!proven_) return take_challenge(in_.take(kAdmitted.size()));
  if (!std::ranges::equal(in_.take(0), kAdmitted))
    return {Code::kUnauthenticated, "handshake: the other side does not end it as corro does"};
  done_ = true;
  return {};
}

Status ClientHandshake::take_challenge(BytesView challenge) {
  const BytesView nonce = challenge.first(kNonceBytes);
  if (!proven(Transcript(kServerLabel, hello_, nonce), challenge.subspan(kNonceBytes), secret_)) {
    return {Code::kUnauthenticated, "handshake: the other side does not know the job's secret"};
  }
  append(output_, prove(Transcript(kClientLabel, hello_, nonce), secret_));
  proven_ = true;
  return {};
}

ServerHandshake::ServerHandshake(const HandshakeIdentity& identity, const Secret& secret)
    : identity_(identity), secret_(secret) {
  io::fill_random(nonce_);
}

Status ServerHandshake::feed(BytesView bytes) {
  if (!in_.collect(bytes)) return {};
  if (!hello_taken_) return take_hello(in_.take(kProofBytes));
  return take_proof(in_.take(0));
}

Status ServerHandshake::take_hello(BytesView bytes) {
  std::copy(bytes.begin(), bytes.end(), hello_.begin());
  CORRO_ASSIGN(const Hello hello, decode_hello(hello_));
  if (hello.job != identity_.job || hello.epoch != identity_.epoch) {
    return {Code::kUnauthenticated, "handshake: another job or epoch"};
  }
  if (hello.to != identity_.rank || hello.from == identity_.rank || hello.from < 0 ||
      hello.from >= identity_.size) {
    return {Code::kUnauthenticated,
            fmt::format("handshake: rank {} asks for rank {}", hello.from, hello.to)};
  }
  peer_rank_ = hello.from;
  purpose_ = hello.purpose;
  hello_taken_ = true;
  append(output_, nonce_);
  append(output_, prove(Transcript(kServerLabel, hello_, nonce_), secret_));
  return {};
}

Status ServerHandshake::take_proof(BytesView bytes) {
  if (!proven(Transcript(kClientLabel, hello_, nonce_), bytes, secret_)) {
    return {Code::kUnauthenticated, "handshake: the other side does not know the job's secret"};
  }
  done_ = true;
  return {};
}

RawLocalHello encode_local_hello(const LocalHello& hello) {
  RawLocalHelloLayout layout;
  layout.purpose = static_cast<uint16_t>(hello.purpose);
  layout.epoch = hello.epoch;
  layout.job = hello.job;
  layout.from = hello.from;
  layout.to = hello.to;
  layout.descriptors = hello.descriptors;
  RawLocalHello raw;
  std::memcpy(raw.data(), &layout, raw.size());
  return raw;
}

Result<LocalHello> decode_local_hello(BytesView packet) {
  RawLocalHelloLayout layout;
  const Status refused(Code::kInvalidArgument,
                       "local hello: not one of corro's, or of another version");
  if (packet.size() != sizeof(layout)) return refused;
  std::memcpy(&layout, packet.data(), sizeof(layout));
  if (layout.magic != kLocalHelloMagic || layout.version != kHandshakeVersion ||
      layout.purpose >= kPurposes || layout.reserved != 0) {
    return refused;
  }
  return LocalHello{.purpose = static_cast<Purpose>(layout.purpose),
                    .job = layout.job,
                    .epoch = layout.epoch,
                    .from = layout.from,
                    .to = layout.to,
                    .descriptors = layout.descriptors};
}

}  // namespace corro::wire
