// A whole engine between two hostile peers: their messages and control frames, whole or broken, in
// any order with operations, groups, losses and time of its own. Whatever they say, every operation
// ends by its deadline, and the engine closes.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "base/bytes.h"
#include "base/check.h"
#include "collective/board/segment.h"
#include "runtime/engine.h"
#include "runtime/link_probe.h"
#include "transport/memory_stream.h"
#include "wire/frame_codec.h"

namespace corro::runtime {
namespace {

constexpr int32_t kRanks = 3;
constexpr uint64_t kMostElements = 40;
constexpr size_t kMostGroups = 4;
constexpr size_t kMostUnread = size_t{1} << 18U;

/// A peer's end of the connection, and what it has still to send.
struct Peer {
  std::unique_ptr<transport::Stream> stream;
  std::shared_ptr<transport::MemoryLink> link;
  Bytes unsent;

  void send(BytesView bytes) {
    if (unsent.size() + bytes.size() > kMostUnread) return;
    unsent.insert(unsent.end(), bytes.begin(), bytes.end());
  }
  void move() {
    iovec piece{unsent.data(), unsent.size()};
    const size_t moved = unsent.empty() ? 0 : stream->write(std::span(&piece, 1)).bytes;
    unsent.erase(unsent.begin(), unsent.begin() + static_cast<std::ptrdiff_t>(moved));
    static std::array<std::byte, 4096> ignored;
    const iovec into{ignored.data(), ignored.size()};
    while (stream->read(std::span(&into, 1)).bytes > 0) {
    }
  }
};

/// Made once: nothing of one input is left in it for the next.
const std::shared_ptr<collective::Segment>& segment() {
  static const std::shared_ptr<collective::Segment> made =
      collective::Segment::create(size_t{1} << 20U).value();
  return made;
}

class Conversation {
 public:
  explicit Conversation(uint8_t setting) : rank_(setting % kRanks) {
    EngineOptions options{.rank = rank_,
                          .size = kRanks,
                          .segment = segment(),
                          .peers = {},
                          .wake = [](int32_t) {},
                          .commit = (setting & 0x80U) != 0};
    for (int32_t r = 0; r < kRanks; ++r) {
      EnginePeer known{
          .where = "nowhere", .host = std::to_string(r), .segment = nullptr, .stream = nullptr};
      if (r != rank_) {
        auto pair = transport::make_memory_pair({.short_moves = (setting & 0x40U) != 0});
        known.stream = std::move(pair.first);
        peers_[static_cast<size_t>(r)] = {std::move(pair.second), std::move(pair.link), {}};
      }
      options.peers.push_back(std::move(known));
    }
    engine_ = Engine::create(std::move(options)).value();
    groups_.push_back(&engine_->world());
  }

  void run(ByteReader& reader) {
    constexpr int kMostCommands = 100;
    for (int i = 0; i < kMostCommands && reader.remaining() > 0; ++i) {
      const uint8_t command = byte(reader) % 8;
      if (command == 0) submit(reader, false);
      if (command == 1) submit(reader, true);
      if (command == 2) control(reader);
      if (command == 3) message(reader);
      if (command == 4) raw(reader);
      if (command == 5) now_ = now_ + std::chrono::milliseconds(100) * byte(reader);
      if (command == 6) lose(reader);
      if (command == 7) change_groups(reader);
      for (int turn = 0; turn < 2; ++turn) move();
    }
  }

  /// Nothing more is said; deadlines pass: 60 s until all have named an operation, 60 s for its
  /// run, and the time for a verdict.
  void finish() {
    for (int jump = 0; jump < 16; ++jump) {
      now_ = now_ + std::chrono::seconds(8);
      for (int turn = 0; turn < 4; ++turn) move();
    }
    for (const auto& work : works_) CORRO_CHECK(work->done(), "an operation waits for ever");
    engine_->close();
  }

 private:
  static uint8_t byte(ByteReader& reader) { return reader.read<uint8_t>().value_or(0); }

  void move() {
    for (Peer& peer : peers_) {
      if (peer.stream != nullptr) peer.move();
    }
    engine_->poll(now_);
  }
  Peer& some_peer(uint8_t which) {
    return peers_[static_cast<size_t>((rank_ + 1 + which % (kRanks - 1)) % kRanks)];
  }
  /// A lane of one of the groups, or one that nobody has.
  [[nodiscard]] LaneKey some_lane(uint8_t which) const {
    const Group& group = *groups_[which % groups_.size()];
    const LaneKey own = group.facts().key;
    switch (which / 32) {
      case 0:
      case 1:
        return own;
      case 2:
        return group.keys()[0];
      case 3:
        return group.keys()[1];
      case 4:
        return derive_key(own,
                          fmt::format("pair {} {} {}", (rank_ + 1) % kRanks, rank_, which % 4));
      case 5:
        return {.epoch = 1, .key = own.key};
      case 6:
        return {.epoch = 0, .key = which};
      default:
        return {.epoch = UINT32_MAX, .key = UINT64_MAX};
    }
  }

  /// The same bytes give this rank's requests and the signatures of its peers' messages.
  static collective::OpRequest request_of(uint8_t kind, uint8_t count) {
    collective::OpRequest request;
    request.kind = static_cast<OpKind>(kind % kOpKindCount);
    request.dtype = DType::kF32;
    request.root = kind / kOpKindCount % kRanks;
    request.count = count % kMostElements;
    return request;
  }

  void submit(ByteReader& reader, bool named) {
    Group& group = *groups_[byte(reader) % groups_.size()];
    const uint8_t kind = byte(reader);
    collective::OpRequest request = request_of(kind, byte(reader));
    buffers_.emplace_back(kMostElements * kRanks);
    request.input = reinterpret_cast<const std::byte*>(buffers_.back().data());
    buffers_.emplace_back(kMostElements * kRanks);
    request.output = reinterpret_cast<std::byte*>(buffers_.back().data());
    request.name = named ? std::string(1, static_cast<char>('a' + kind % 4)) : "";
    works_.push_back(std::make_shared<WorkState>(std::vector{std::move(request)}));
    works_.back()->named = named;
    works_.back()->hurry = kind >= 128;
    engine_->submit(group, works_.back(), now_);
  }

  SignatureBits signature(ByteReader& reader) {
    const uint8_t kind = byte(reader);
    const uint8_t count = byte(reader);
    if (kind != UINT8_MAX) return collective::signature_of(request_of(kind, count), kRanks).pack();
    return {reader.read<uint64_t>().value_or(0), reader.read<uint64_t>().value_or(0),
            reader.read<uint32_t>().value_or(0)};
  }

  void control(ByteReader& reader) {
    Peer& peer = some_peer(byte(reader));
    wire::Control said;
    said.kind = static_cast<wire::ControlKind>(1 + byte(reader) % 12);
    said.lane = some_lane(byte(reader));
    said.op = byte(reader);
    said.rank = static_cast<int8_t>(byte(reader));
    said.code = byte(reader) % 17;
    if (said.kind == wire::ControlKind::kVote) said.signature = signature(reader);
    const auto text = reader.read_bytes(byte(reader)).value_or(BytesView());
    said.text.assign(reinterpret_cast<const char*>(text.data()), text.size());
    peer.send(wire::encode_control(said));
  }

  void message(ByteReader& reader) {
    Peer& peer = some_peer(byte(reader));
    wire::FrameHeader header{.kind = wire::FrameKind::kMessage};
    header.lane = some_lane(byte(reader));
    header.op = byte(reader);
    header.step = byte(reader);
    header.signature = signature(reader);
    const auto payload = reader.read_bytes(byte(reader)).value_or(BytesView());
    header.piece = static_cast<uint32_t>(payload.size());
    header.offset = byte(reader);
    header.length = header.offset + payload.size() + (byte(reader) % 4) * uint64_t{300};
    Bytes bytes(wire::kFrameHeaderBytes);
    wire::encode_frame(header, std::span(bytes).first<wire::kFrameHeaderBytes>());
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    peer.send(bytes);
  }

  void raw(ByteReader& reader) {
    Peer& peer = some_peer(byte(reader));
    peer.send(reader.read_bytes(byte(reader)).value_or(BytesView()));
  }

  void lose(ByteReader& reader) {
    const uint8_t how = byte(reader);
    Peer& peer = some_peer(how);
    if (how >= 128) return engine_->peer_ended(static_cast<int32_t>(&peer - peers_.data()), "gone");
    peer.link->sever("severed");
  }

  void change_groups(ByteReader& reader) {
    const uint8_t which = byte(reader);
    if (which >= 128 && groups_.size() > 1) {
      if (engine_->destroy_group(*groups_.back()).ok()) groups_.pop_back();
      return;
    }
    if (groups_.size() == kMostGroups) return;
    std::vector<int32_t> members;
    for (int32_t r = 0; r < kRanks; ++r) {
      if ((which >> static_cast<uint32_t>(r) & 1U) != 0) members.push_back(r);
    }
    const auto made = engine_->create_group(members);
    if (made.ok() && *made != nullptr) groups_.push_back(*made);
  }

  int32_t rank_;
  Time now_;
  std::array<Peer, kRanks> peers_;  ///< By rank; the own one is empty.
  std::unique_ptr<Engine> engine_;
  std::vector<Group*> groups_;
  std::deque<std::vector<float>> buffers_;
  std::vector<std::shared_ptr<WorkState>> works_;
};

}  // namespace
}  // namespace corro::runtime

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size));
  (void)corro::runtime::decode_probe_round(bytes.first(std::min(size, size_t{16})));
  corro::runtime::Conversation conversation(data[0]);
  corro::ByteReader reader(bytes.subspan(1));
  conversation.run(reader);
  conversation.finish();
  return 0;
}
