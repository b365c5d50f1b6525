// AgentService: the agent's half of the bootstrap, embedded in its event loop.
//
//   AgentService::Options options{.job = "job-7f", .secret = random_secret(), .size = 4};
//   options.on_hello = [&](WorkerHello hello) { keep(hello.rank, std::move(hello.descriptors)); };
//   auto service = AgentService::create(std::move(options)).value();
//   environment["CORRO_AGENT"] = service->name();
//   epoll.add(service->poll_fd(), EPOLLIN, kAgent);  // level-triggered
//   ... on kAgent: CORRO_TRY(service->poll());
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/fd.h"
#include "wire/bootstrap.h"
#include "wire/notice.h"
#include "wire/secret.h"

namespace corro::wire {

/// Where the agent of a pod serves ranks that mpirun has started: the same name in each pod of the
/// job, since some launchers give their own variables to all ranks.
[[nodiscard]] std::string pod_service_name(const std::string& job_uid);

/// A worker that has introduced itself.
struct WorkerHello {
  int32_t rank = -1;  ///< A server's number is kFirstServer and more (server_number.h).
  pid_t pid = 0;      ///< As the kernel knows it (SO_PEERCRED), not as the worker says.
  std::vector<io::Fd> descriptors;  ///< What it passed: its flight recorder's memfd, or nothing.
};

/// A member of an elastic job that has left its engine.
struct WorkerReady {
  std::string member;  ///< As in CORRO_MEMBER_UUID.
  uint32_t epoch = 0;  ///< That it waits for; its last one, if it has left that unasked.
  uint64_t steps = 0;  ///< That it has applied.
  int32_t lost = -1;   ///< The rank of its last epoch whose loss has ended that for it; -1: none.
};

struct WorkerNotice {
  std::string member;  ///< As in CORRO_MEMBER_UUID.
  Notice notice;
};

/// A key-value store, greeting and hand-out of the secret for the workers of one host, over an
/// abstract Unix socket that only processes of this user may use. Never blocks. Loop-confined.
class AgentService {
 public:
  struct Options {
    std::string job;
    Secret secret{};
    int32_t size = 1;     ///< Ranks of the job; a HELLO with another rank is refused.
    int32_t servers = 0;  ///< Table servers of the job, whose numbers are not refused either.
    /// Abstract name to listen on; "": a random one.
    std::string name;
    /// Called in poll() for each HELLO, but that of a reader; a rank says HELLO once per engine.
    std::function<void(WorkerHello)> on_hello;
    /// Called in poll() for each key that a worker of this host has put; may be empty.
    std::function<void(const std::string& key, const Bytes& value)> on_put = {};
    /// Called in poll() for each READY; may be empty.
    std::function<void(WorkerReady)> on_ready = {};
    /// Called in poll() for each LEAVE, with the member; may be empty.
    std::function<void(const std::string& member)> on_leave = {};
    /// Called in poll() for each NOTICE; may be empty.
    std::function<void(WorkerNotice)> on_notice = {};
    size_t max_store_bytes = 64U << 20U;  ///< Keys and values together.
  };
  struct Counters {
    uint64_t connections = 0;
    uint64_t refused = 0;  ///< Other users, garbage, too many.
  };

  static Result<std::unique_ptr<AgentService>> create(Options options);
  ~AgentService();

  /// The abstract name, for CORRO_AGENT.
  [[nodiscard]] const std::string& name() const;
  /// Readable while poll() has something to do.
  [[nodiscard]] int poll_fd() const;
  /// Handles what is ready and returns. A failure means that the service cannot go on (out of
  /// descriptors, ...); what a worker does wrong only costs it its connection.
  [[nodiscard]] Status poll();
  /// Serves a rank of another host, too, over a TCP connection on which both sides have proven that
  /// they know the secret; it is not handed out there.
  [[nodiscard]] Status adopt(io::Fd connection, int32_t rank);
  /// How many are connected.
  [[nodiscard]] size_t connected() const;
  /// A worker of another host has put this key. Ignored if there is one, or no room.
  void supply(const std::string& key, const Bytes& value);
  /// The process of this rank has ended and left none behind: unless it has ever said HELLO, who
  /// asks for one of its keys gets NOT_FOUND from now on, with what has become of it. `host`: where
  /// it was, for people; "": here. Of a server: unless it has said where it listens.
  void end_rank(int32_t rank, const std::string& host = "");
  /// Whether the rank has ever said HELLO, in this epoch; of a server: whether it has put a key.
  [[nodiscard]] bool greeted(int32_t rank) const;
  /// A member of this host is to leave its engine, since this epoch comes: at once, or at the end of
  /// its step. It hears of it when it follows, now or later.
  void prepare(const std::string& member, uint32_t epoch, bool at_once, const std::string& why);
  /// A new epoch of so many ranks begins: keys and ranks of the older one are forgotten. Its
  /// members are told by commit().
  void start_epoch(int32_t size);
  /// The epoch has begun, and the member has this rank in it. The last one: it is to save what it
  /// has, and to end.
  void commit(const std::string& member, uint32_t epoch, int32_t rank, bool last = false);
  /// No epoch comes any more: members that follow lose that connection, now and later.
  void end_epochs();
  [[nodiscard]] const Counters& counters() const;

 private:
  struct Impl;
  explicit AgentService(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace corro::wire
