// Outbox: the sending half of an Endpoint. Queues messages and control frames and writes them piece
// by piece.
//
//   post() --> queued --> current: piece after piece is written --> all has left: done
//                ^  |          |
//        RESUME, |  v          | PAUSE, between two pieces
//    PAUSE above |  held <-----'
//
// One frame is written at a time, and a frame that has begun is always written to its end: the
// peer could not find the next one otherwise. So PAUSE holds a message back between its pieces, and
// cancel() of a message in the middle of a frame keeps a copy of the rest of that frame: the
// caller's memory is free when cancel() returns.
//
// The peer's PAUSE names the first operation of a lane that it has not started. That operation and
// later ones of the lane are held; earlier ones, for which the peer waits, still flow. Own PAUSE
// and RESUME go before everything that is queued, so two ranks that are both full still hear each
// other. Of two for one lane that have not left, the last one counts.
//
// A turn is what may be written between two reads of the stream: however many messages are posted
// in one go, a PAUSE is read before much has been written against it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "transport/endpoint.h"
#include "transport/stream.h"
#include "transport/traffic.h"
#include "wire/frame_codec.h"

namespace corro::transport {

/// Loop-confined. Borrows the stream.
class Outbox {
 public:
  /// Without a stream everything is queued until connect().
  Outbox(Stream* stream, obs::Metrics metrics) : metrics_(std::move(metrics)) {
    if (stream != nullptr) connect(*stream);
  }
  void connect(Stream& stream) {
    stream_ = &stream;
    traffic_ = traffic_of(stream);
  }

  /// See Endpoint::count_on.
  void count_on(obs::Link link) { link_ = std::move(link); }

  /// See Endpoint::post_send.
  void post(SendRequest& request);
  /// See Endpoint::send_control.
  void post(const wire::Control& control);
  /// See Endpoint::cancel.
  void cancel(const LaneKey& lane, uint64_t op);
  /// Forgets what the peer has said of a lane whose operations are all cancelled or over.
  void close_lane(const LaneKey& lane) { holds_.erase(lane); }
  /// The peer's PAUSE: operations of the lane from `op` on stay here; what was held below flows
  /// again.
  void hold_from(const LaneKey& lane, uint64_t op);
  /// The peer's RESUME: everything held of the lane flows again.
  void release(const LaneKey& lane);
  /// Sends a PAUSE or RESUME before anything queued; replaces one for the same lane that has not
  /// left.
  void send_flow(wire::ControlKind kind, const LaneKey& lane, uint64_t op);

  /// The stream is read next: as much may be written again as a turn takes.
  void start_turn() { turn_bytes_ = 0; }
  /// Writes until the stream is full, everything is written or the turn is over; true if anything
  /// moved.
  bool flush();
  /// True while something is queued or held and the stream can still take it.
  [[nodiscard]] bool has_unsent() const;
  /// True once the stream takes no more.
  [[nodiscard]] bool broken() const { return broken_; }

 private:
  /// A message (`request`) or a control frame; neither: cancelled while queued.
  struct Item {
    SendRequest* request = nullptr;
    size_t sent = 0;  ///< Payload bytes in frames that have left.
    std::unique_ptr<wire::Control> control;
    [[nodiscard]] bool empty() const { return request == nullptr && control == nullptr; }
    [[nodiscard]] bool belongs_to(const LaneKey& lane, uint64_t op) const {
      return request != nullptr && request->key.lane == lane && request->key.op == op;
    }
  };
  /// First in, first out; allocates only while it grows.
  class Queue {
   public:
    [[nodiscard]] bool empty() const { return head_ == items_.size(); }
    void push(Item item) { items_.push_back(std::move(item)); }
    Item pop();
    void drop(const LaneKey& lane, uint64_t op);

   private:
    std::vector<Item> items_;
    size_t head_ = 0;
  };
  struct Hold {
    uint64_t from = 0;
    std::vector<Item> items;
  };
  struct Flow {
    wire::ControlKind kind;
    LaneKey lane;
    uint64_t op;
  };

  bool start_frame();
  bool start_flow_frame();
  void start_item_frame();
  void begin(const wire::FrameHeader& header, BytesView payload, bool of_current);
  void finish_frame();
  bool put_on_hold(Item& item);
  void release_below(Hold& hold, uint64_t op);

  Stream* stream_ = nullptr;
  obs::Metrics metrics_;
  Traffic traffic_;
  obs::Link link_;
  bool broken_ = false;
  size_t turn_bytes_ = 0;  ///< Written in this turn.

  // The frame being written.
  bool frame_active_ = false;
  bool frame_of_current_ =
      false;  ///< Otherwise it is a flow frame or what is left of a cancelled message.
  std::array<std::byte, wire::kFrameHeaderBytes> header_{};
  BytesView payload_;
  size_t written_ = 0;  ///< Of header and payload together.
  Bytes private_copy_;  ///< The payload of a frame whose request was cancelled.

  Item current_;  ///< Started and not finished; goes on at the next frame.
  Queue queue_;
  std::vector<Flow> flow_;
  std::unordered_map<LaneKey, Hold, LaneKeyHash>
      holds_;  ///< By lane; only lanes the peer has paused.
};

}  // namespace corro::transport
