// Inbox: the receiving half of an Endpoint. Reads frames and places each piece by its key.
//
//   posted     a request waits; the first piece may come
//   arriving   pieces go straight from the stream to the request's memory
//   early      a piece has come without a request: it is kept (*bounced*), and given to the request
//              when that is posted, also in the middle of a piece
//   dropped    signature or length differ from the request's: the request is done with `mismatch`,
//              and what still comes of the message is read and thrown away
//
// A lane may bounce so many bytes. Above the limit the peer is told PAUSE from the first operation
// on that has not started here, and again whenever more have started; at half the limit, RESUME.
// So memory is bounded, and what this rank waits for is never held back.
//
// cancel() and retire_below() say that operations are over: what comes of them later is dropped. An
// early message and one of an operation that is over are also shown as strays: they say what the
// peer has called. What comes of closed lanes and earlier epochs is dropped without a word. The
// peer is foreign: a piece that does not go on where its message stands ends the stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/buffer_pool.h"
#include "base/status.h"
#include "transport/endpoint.h"
#include "transport/key_table.h"
#include "transport/outbox.h"
#include "transport/stream.h"
#include "transport/traffic.h"
#include "wire/frame_codec.h"

namespace corro::transport {

/// Loop-confined. Borrows the stream and the outbox (for PAUSE and RESUME, both ways).
class Inbox {
 public:
  /// Without a stream nothing arrives until connect().
  Inbox(Stream* stream, Outbox& outbox, obs::Metrics metrics, EndpointLimits limits,
        Endpoint::ControlHandler on_control, Endpoint::StrayHandler on_stray);
  ~Inbox();
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;
  void connect(Stream& stream);

  /// See Endpoint::post_recv.
  void post(RecvRequest& request);
  /// See Endpoint::cancel.
  void cancel(const LaneKey& lane, uint64_t op);
  /// See Endpoint::retire_below.
  void retire_below(const LaneKey& lane, uint64_t op);

  /// See Endpoint::close_lane.
  void close_lane(const LaneKey& key);
  /// See Endpoint::start_epoch.
  void start_epoch(uint32_t epoch);
  /// See Endpoint::awaits.
  [[nodiscard]] bool awaits() const { return awaited_ > 0; }

  /// Reads until the stream is empty or the turn is over; true if anything moved. A read that
  /// returned less than it asked for counts as empty: the caller comes back until nothing moves.
  bool fill();
  /// Takes no more from the stream; `reason` is empty for an orderly end.
  void end(std::string reason);
  /// True once nothing will arrive any more.
  [[nodiscard]] bool ended() const { return ended_; }
  /// See Endpoint::last_message.
  [[nodiscard]] const std::optional<MessageHead>& last_message() const { return last_message_; }
  /// Why the stream is useless, if it did not end between two frames.
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  struct Piece {
    BufferPool::Buffer bytes;
    size_t size = 0;
  };
  /// A message that is posted, arriving, early, or being dropped because it does not match.
  struct Incoming {
    RecvRequest* request = nullptr;
    bool begun = false;  ///< A header has arrived: signature and length are known.
    bool drop = false;
    SignatureBits signature;
    uint64_t length = 0;
    uint64_t received = 0;  ///< Bytes of finished pieces.
    std::vector<Piece>
        bounced;  ///< Without a request: what has arrived, the last one perhaps not whole.
  };
  struct Lane {
    LaneKey key;
    uint64_t retired_below = 0;
    uint64_t first_unstarted = 0;
    std::vector<uint64_t> cancelled;  ///< Operations not below retired_below.
    size_t unclaimed = 0;             ///< Entries without a request.
    size_t bounced_bytes = 0;
    bool paused = false;  ///< The peer was told to hold back what is not started.
  };

  Lane& lane_of(const LaneKey& key);
  [[nodiscard]] bool is_closed(const LaneKey& key) const;
  [[nodiscard]] static bool is_over(const Lane& lane, uint64_t op);
  void started(Lane& lane, uint64_t below);
  void add_bounced(Lane& lane, Incoming& message, size_t size);
  void free_bounced(Lane& lane, Incoming& message);
  void forget(Lane& lane, uint64_t op_from, uint64_t op_below);
  [[nodiscard]] bool arriving(const MessageKey& key) const;
  /// False, and the request is done, if the message is another one than it expects.
  [[nodiscard]] static bool take(RecvRequest& request, const Incoming& message);
  void claim(Lane& lane, Incoming& message, RecvRequest& request);

  void consume();
  [[nodiscard]] Status start_frame();
  [[nodiscard]] Status start_message();
  [[nodiscard]] Status check_continuation(const Incoming& message) const;
  void finish_frame();
  void finish_message_piece();
  void finish_control();
  [[nodiscard]] size_t staged() const { return staged_end_ - staged_begin_; }
  size_t read_pieces(std::span<iovec, 2> pieces);
  void at_end_of_stream();

  Stream* stream_ = nullptr;
  Outbox& outbox_;
  obs::Metrics metrics_;
  Traffic traffic_;
  EndpointLimits limits_;
  BufferPool spare_pieces_;
  Endpoint::ControlHandler on_control_;
  Endpoint::StrayHandler on_stray_;
  bool ended_ = false;
  std::string failure_;

  KeyTable<Incoming> messages_;
  std::unordered_map<LaneKey, Lane, LaneKeyHash> lanes_;
  size_t awaited_ = 0;        ///< Posted receives that are not done.
  size_t bounced_bytes_ = 0;  ///< Payload of early messages, all lanes together.
  uint32_t epoch_ = 0;        ///< Messages of earlier ones are dropped.
  static constexpr size_t kMostClosed = 256;
  std::vector<LaneKey> closed_;  ///< A ring of the lanes closed last.
  size_t next_closed_ = 0;
  std::optional<MessageHead> last_message_;
  Lane* last_lane_ = nullptr;  ///< The lane looked up last; map nodes stay in place.

  // Bytes read and not looked at yet; empty while a payload is read straight to its place.
  std::unique_ptr<std::byte[]> staging_;
  size_t staging_ask_;  ///< How much of it the next read may fill.
  size_t staged_begin_ = 0;
  size_t staged_end_ = 0;

  // The frame being read; idle between frames.
  wire::FrameHeader frame_;
  MessageKey key_;
  size_t payload_left_ = 0;
  std::byte* sink_ = nullptr;  ///< Where the next payload byte goes; null: dropped.
  std::string control_text_;
};

}  // namespace corro::transport
