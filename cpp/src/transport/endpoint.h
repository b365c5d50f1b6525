// Endpoint: eager tagged messages to one peer over a Stream, with no ready-handshake.
//
// A message is placed by its key (lane, op, step) straight into the posted receive; one that is
// early waits in a bounded bounce pool. When a lane's bounced bytes pass the limit, the receiver
// tells the sender to hold back that lane's operations it has not started (PAUSE), so operations it
// waits for still flow: no deadlock, bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "base/bytes.h"
#include "base/lane_key.h"
#include "base/signature_bits.h"
#include "obs/links.h"
#include "obs/metrics.h"
#include "transport/stream.h"
#include "wire/frame.h"

namespace corro::transport {

/// Says which message of which operation: op = the lane's operation id, step = tag of the schedule
/// step, unique within (sender, receiver, op). Each direction and tag of send and recv is a lane.
struct MessageKey {
  LaneKey lane = {};
  uint64_t op = 0;
  uint32_t step = 0;
  friend auto operator<=>(const MessageKey&, const MessageKey&) = default;
};

/// Owned by the poster, who keeps it and the payload in place until done.
struct SendRequest {
  MessageKey key;
  SignatureBits signature = {};
  BytesView payload;
  bool done = false;  ///< The payload has left; the buffer may be reused.
};

struct RecvRequest {
  MessageKey key;
  SignatureBits signature = {};
  std::span<std::byte> into;
  bool may_be_shorter = false;  ///< Fewer bytes than `into` has are no mismatch.
  bool done = false;
  /// Set with done when the peer's signature or length differs: nothing was written; the peer's
  /// values are here.
  bool mismatch = false;
  SignatureBits peer_signature = {};
  uint64_t peer_bytes = 0;  ///< Also set if it may be shorter.
};

/// What the first piece of a message said of it.
struct MessageHead {
  MessageKey key;
  SignatureBits signature = {};
};

struct EndpointLimits {
  size_t bounce_bytes_per_lane = 4U << 20U;  ///< PAUSE above, RESUME below half of it.
  size_t max_message_bytes = 1ULL << 40U;
};

/// Loop-confined.
class Endpoint final {
 public:
  /// `on_control` receives every control frame (wire::Control) in order, during progress().
  using ControlHandler = std::function<void(const wire::Control&)>;
  /// `on_stray` hears, during progress(), of every message that has no posted receive (early, or
  /// its operation is over) when its first piece arrives: its signature may show that the peer
  /// called something else. It may not call back.
  using StrayHandler = std::function<void(const MessageKey&, const SignatureBits& signature)>;

  /// `stream` may be null: what is posted waits then until connect(). Endpoints may share metrics.
  Endpoint(std::unique_ptr<Stream> stream, ControlHandler on_control, EndpointLimits limits = {},
           StrayHandler on_stray = {}, const obs::Metrics& metrics = {});
  ~Endpoint();

  /// Gives an endpoint without a stream its stream; one that is closed closes it.
  void connect(std::unique_ptr<Stream> stream);
  [[nodiscard]] bool connected() const;
  /// Bytes of messages that are sent from now on are counted there, too.
  void count_on(obs::Link link);

  /// Queues a message; tries to write at once when nothing is queued before it and not much has
  /// been written since progress(): a batch of posts must not outrun the peer's PAUSE.
  void post_send(SendRequest& request);
  /// Registers where a message goes; takes it from the bounce pool at once when it is already here.
  void post_recv(RecvRequest& request);
  /// Control frames (abort, cancel, goodbye, readiness) are small, never paused, and keep their
  /// order among themselves and after messages queued before that the peer has not paused.
  void send_control(const wire::Control& control);
  /// Forgets every request of the operation and drops what still arrives for it. A piece of a
  /// message that is partly written is completed from a private copy (the message's other pieces
  /// are not sent), a partly read one is drained. After this the poster may free its requests.
  void cancel(const LaneKey& lane, uint64_t op);
  /// Tells the endpoint that operations of `lane` below `op` are over here: late messages for them
  /// are dropped. None of their requests may be posted any more.
  void retire_below(const LaneKey& lane, uint64_t op);

  /// The lane's group is gone here: drops what is held for the lane and what still arrives. Keys
  /// are not used again, so the last 256 closed lanes are enough to know late messages by.
  void close_lane(const LaneKey& lane);
  /// Lanes of earlier epochs are closed, for good.
  void start_epoch(uint32_t epoch);
  /// True while a posted receive is not done: the peer owes something.
  [[nodiscard]] bool awaits() const;

  /// Moves bytes both ways without blocking; true if anything moved. Sleep only after a call that
  /// returned false: one call neither reads nor writes without end, and does not read again to see
  /// that nothing is there.
  bool progress();
  /// Set once the stream is closed by the peer or broken (a protocol error counts as broken).
  [[nodiscard]] bool closed() const;
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] bool has_unsent() const;
  [[nodiscard]] int poll_fd() const;
  [[nodiscard]] const obs::Metrics& metrics() const;
  /// The message that came last, whether it is wanted or not; none if there was none.
  [[nodiscard]] const std::optional<MessageHead>& last_message() const;
  void close();
  /// See Stream::close_in_child.
  void close_in_child();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace corro::transport
