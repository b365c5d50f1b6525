// Watch: every descriptor that a process's progress thread sleeps on, and what the thread learns
// from them: which peers' processes or hosts are gone, and which streams have been made.
//
//   an idle engine waits for     its own wake-up, pidfds of local ranks, listeners, liveness
//                                connections, a new epoch
//   a busy engine waits for      the same, its doorbell and its streams
//
// The idle set is nested in the busy one. A loss or a stream is only noted; whoever moves the
// engine next takes it. A pidfd stays readable for ever, so it is looked at once.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/guarded.h"
#include "base/status.h"
#include "io/event.h"
#include "io/fd.h"
#include "obs/metrics.h"
#include "runtime/epoch_link.h"
#include "runtime/liveness_links.h"
#include "runtime/peers.h"
#include "transport/connector.h"

namespace corro::runtime {

struct WatchOptions {
  io::EventFd doorbell{io::Fd()};        ///< The one that peers ring; they hold copies.
  std::map<MemberId, int> streams = {};  ///< Descriptors to poll, borrowed.
  std::vector<int32_t> pids = {};        ///< By rank; 0: not watched.
  std::unique_ptr<transport::Connector> connector = nullptr;  ///< Null: makes no streams.
  std::unique_ptr<LivenessLinks> liveness = nullptr;  ///< Null where all ranks are on one host.
  std::shared_ptr<EpochLink> epochs = nullptr;        ///< Null in a job that is not elastic.
  uint32_t epoch = 0;                                 ///< The engine's.
  obs::Metrics metrics = {};                          ///< Where wake-ups are counted.
};

/// Used by the progress thread alone, but for what is marked.
class Watch {
 public:
  static Result<std::unique_ptr<Watch>> create(WatchOptions options);

  /// Ends the sleep of the progress thread, or the next one. Thread-safe.
  void wake() { wake_->ring(); }
  /// Sleeps until somebody wakes it or a rank may be lost.
  void sleep_while_idle();
  /// Sleeps until one of these, until a peer rings, a stream moves, or the time is over.
  void sleep_while_busy(Duration longest);
  /// Takes in what an idle engine would wake up for. Does not block.
  void look();

  /// Streams to these are wanted: the progress thread dials them. Thread-safe.
  void want(const std::vector<MemberId>& members);

  /// Watches a stream's descriptor, borrowed; does nothing for -1. For the holder of the baton,
  /// like the next two.
  void add_stream(MemberId member, int fd);
  /// The same of a stream to who is no member.
  void add_aggregator(int fd);
  /// Whether it is worth asking who is readable: with one stream a look at it is as cheap.
  [[nodiscard]] bool knows_readable() const { return streams_ > 1; }
  void for_each_readable(const std::function<void(MemberId)>& visit);

  /// Losses or streams were noted that nobody has taken. Thread-safe, all three.
  [[nodiscard]] bool has_news() const { return news_.load(std::memory_order_seq_cst) != 0; }
  [[nodiscard]] std::vector<Loss> take_losses();
  [[nodiscard]] std::vector<transport::JoinedPeer> take_streams();
  /// Why the engine's epoch ends, once it does.
  [[nodiscard]] std::optional<std::string> take_epoch_end();
  /// Another epoch is planned: members leave this one at the end of a step. Thread-safe.
  [[nodiscard]] bool epoch_ends() const { return epoch_ends_.load(std::memory_order_acquire); }

  /// In a forked child: closes every descriptor. Nothing else may be called after it.
  void abandon_in_child();

 private:
  Watch() = default;
  Status set_up(WatchOptions options);
  Status add_processes(const std::vector<int32_t>& pids);
  void wait(io::Epoll& set, Duration longest);
  void handle(uint64_t event);
  void process_ended(int32_t rank);
  void note(std::vector<Loss> losses);
  void dial_wanted();
  void connect();
  void look_for_epoch();

  /// Null in a forked child.
  std::unique_ptr<io::EventFd> doorbell_, wake_;
  std::unique_ptr<io::Epoll> idle_, busy_;
  std::unique_ptr<io::Epoll> readable_;  ///< Streams alone.
  uint32_t streams_ = 0;                 ///< Their number.
  std::vector<io::Fd> pidfds_;           ///< By rank.
  std::unique_ptr<transport::Connector> connector_;
  std::unique_ptr<LivenessLinks> liveness_;  ///< Uses the connector.
  std::shared_ptr<EpochLink> epochs_;
  uint32_t epoch_ = 0;  ///< The engine's.
  std::atomic<bool> epoch_ends_{false};
  Guarded<std::optional<std::string>> epoch_end_;
  Guarded<std::vector<MemberId>> wanted_;
  Guarded<std::vector<Loss>> losses_;
  Guarded<std::vector<transport::JoinedPeer>> new_streams_;
  std::atomic<uint32_t> news_{0};  ///< Not 0: there is something to take.
  obs::Metrics metrics_;
};

}  // namespace corro::runtime
