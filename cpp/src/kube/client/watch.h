// Watch: the objects of one type as they are and as they change, for as long as somebody listens.
//
//   const auto on_event = [&](const WatchEvent& event) { store.take(event); };
//   const Status end = watch(client, {kPods, "default"}, on_event, stop);
//
// A watch lists everything (resynced) and then follows the changes from that moment on. When the
// stream is cut, it goes on behind the last event. It lists again when the server no longer
// remembers that moment (410), or has sent bytes that cannot be read. Then resynced tells the
// listener to replace what it knows.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "base/status.h"
#include "kube/client/client.h"
#include "kube/client/watch_lines.h"

namespace corro::kube {

struct WatchRequest {
  ResourceType type;
  std::string space = {};  ///< "" watches all namespaces.
  Selector selector = {};
};

/// The next step of a watch, and its time. Pure state machine:
///
///   list --ok--> stream --ends, cut--> (wait) stream again from the last version
///     ^             |-410, unreadable-> (wait) list
///     |--fails--(wait)
///
/// The waits double with each failure in a row, from 100 ms to 30 s; a stream that lasted ten
/// seconds or brought an event ends the row. So a server that ends each watch at once is asked ever
/// more slowly, and one that ends it after minutes, as servers do, is asked again at once.
class WatchCourse {
 public:
  enum class Step : uint8_t { kList, kStream };
  [[nodiscard]] Step next() const { return version_.empty() ? Step::kList : Step::kStream; }
  [[nodiscard]] const std::string& version() const { return version_; }

  void listed(const std::string& version) { version_ = version; }
  /// An event came.
  void seen(const std::string& version);
  /// The list or the stream has ended. Returns how long to wait, at least `retry_after`.
  [[nodiscard]] Duration ended(Code code, Duration lasted, Duration retry_after, double random);
  /// True if the same request can only fail again: the watch returns this failure.
  [[nodiscard]] static bool is_final(Code code);

 private:
  std::string version_;
  uint32_t failures_ = 0;
};

/// Runs on its caller's thread, and so does `on_event`, in the order of the changes and without a
/// lock. Returns CANCELLED as soon as `stop` is requested from any thread, also out of a read that
/// hangs; else only what cannot heal: INVALID_ARGUMENT, NOT_FOUND (no such type),
/// PERMISSION_DENIED. Every other failure is told as kTrouble, an expired credential too. Watches
/// may share a client.
[[nodiscard]] Status watch(Client& client, const WatchRequest& request,
                           const std::function<void(WatchEvent)>& on_event,
                           const std::stop_token& stop);

}  // namespace corro::kube
