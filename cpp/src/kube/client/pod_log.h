// The log of a container, for as long as the container runs.
//
//   const LogRequest request{.pod = {"default", "job-head"}, .container = "head"};
//   const Status end = follow_log(client, request, show, on_trouble, stop);
//
// The API server's connections are cut now and then: proxies, restarts, the kubelet. follow_log()
// asks again from the last second on, and LogLines leaves out what has been received:
//
//   look      the pod's status says whether the container waits, runs or has ended
//   stream    the log, to its end; not while the container waits
//   over      the container had ended before the stream began, and the stream was whole
//   again     after 50 ms to 5 s, ever longer while nothing comes
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "base/status.h"
#include "base/unix_time.h"
#include "kube/client/client.h"
#include "kube/client/log_lines.h"

namespace corro::kube {

struct LogRequest {
  ObjectKey pod;
  std::string container;                    ///< Of any kind: init containers have logs too.
  std::optional<uint32_t> tail_lines = {};  ///< Begins with the last lines alone.
  std::optional<std::chrono::sys_seconds> since = {};  ///< Without older lines.
  /// Tries again after a refusal, too: whoever gave no right may give it, and a node that does not
  /// serve a log may come back. Only the end of the pod ends it.
  bool outlasts_refusals = false;
};

/// One of a pod's containers, by the pod's status.
enum class ContainerState : uint8_t {
  kWaits,  ///< Has not run yet.
  kRuns,   ///< Or waits for its next run.
  kEnded,
};
/// Looks into a pod. NOT_FOUND if it has no such container; FAILED_PRECONDITION if the pod has
/// ended and the container never ran. Pure.
[[nodiscard]] Result<ContainerState> container_state(const Json& pod, const std::string& container,
                                                     const std::string& name);

/// Hands the log to `receive` as bytes, each line once and without its time, until the container
/// has ended; waits for a container that has not begun. A container that begins anew goes on with
/// its next log. Runs on its caller's thread, and so do `receive` and `on_trouble`, which is told
/// every failure after which the log goes on. Returns OK at the end of the log, CANCELLED as soon
/// as `stop` is requested, what `receive` returns if it fails, NOT_FOUND if the pod is gone, and
/// refusals, unless they are to be outlasted: INVALID_ARGUMENT, PERMISSION_DENIED,
/// FAILED_PRECONDITION.
[[nodiscard]] Status follow_log(Client& client, const LogRequest& request,
                                const LogLines::Receive& receive,
                                const std::function<void(const Status&)>& on_trouble,
                                const std::stop_token& stop);

}  // namespace corro::kube
