// World: N engines in one process, polled by one thread in seeded order under a virtual clock.
//
//   World world({.size = 4});
//   auto results = world.run_all([&](int32_t rank) { return allreduce_of(buffers[rank]); });
//   EXPECT_TRUE(results[0].ok());
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "collective/aggregator.h"
#include "collective/operation/request.h"
#include "runtime/engine.h"
#include "transport/memory_stream.h"

namespace corro::testing {

struct WorldOptions {
  int32_t size = 2;
  uint64_t seed = 1;
  bool board = true;                ///< false: as CORRO_TRANSPORT=tcp, over in-memory streams.
  std::vector<int32_t> hosts = {};  ///< Of each rank; empty: all on one.
  bool private_reads = true;        ///< Ranks may read each other's private memory.
  Duration timeout = std::chrono::seconds(60);
  size_t heap_bytes = size_t{64} << 20U;
  size_t stream_bytes = size_t{64} << 10U;
  bool short_moves = false;  ///< Streams move a random part of what they could.
  collective::SelectionTable selection = {};
  named::FusionOptions fusion = {};
  bool deterministic = false;  ///< As CORRO_DETERMINISTIC=1.
  bool commit = false;         ///< As CORRO_COMMIT=1.
  bool rests = false;          ///< Idle engines are not polled, as a process's would not be.
  int32_t aggregators = 0;     ///< Beside the engines, each on a host of its own.
};

/// Hosts of ranks as text: "0112" for one rank on host 0, two on host 1 and one on host 2.
[[nodiscard]] std::vector<int32_t> hosts_of(std::string_view text);
/// As CORRO_ALGORITHMS: two-level for whatever it can do.
inline constexpr std::string_view kTwoLevelEverywhere =
    "allreduce=two_level,reducescatter=two_level,allgather=two_level,alltoall=two_level,"
    "broadcast=two_level,reduce=two_level,barrier=two_level";
/// The same as a table.
[[nodiscard]] collective::SelectionTable two_level_everywhere();

/// Loop-confined: every engine is polled by the thread that calls run().
class World {
 public:
  using Works = std::vector<std::shared_ptr<runtime::WorkState>>;

  explicit World(const WorldOptions& options);
  ~World();

  [[nodiscard]] int32_t size() const { return options_.size; }
  [[nodiscard]] runtime::Engine& engine(int32_t rank) {
    return *engines_[static_cast<size_t>(rank)];
  }
  [[nodiscard]] Time now() const { return now_; }

  /// Adds an engine that knows all others, and they it; it is in no epoch's world yet. Returns its
  /// member id, by which engine() finds it.
  int32_t add_engine();
  /// All these members go to the next epoch together, with ranks in this order.
  void start_epoch(uint32_t epoch, const std::vector<int32_t>& members);

  /// Submits one unit of operations on a rank's world group (or the given group).
  std::shared_ptr<runtime::WorkState> submit(int32_t rank,
                                             std::vector<collective::OpRequest> requests);
  std::shared_ptr<runtime::WorkState> submit(runtime::Engine& engine, runtime::Group& group,
                                             std::vector<collective::OpRequest> requests);
  /// Polls all live engines until the works are done. Virtual time passes only while nothing moves.
  /// Throws when nothing moves and no deadline is left: a hang.
  void run(const Works& works);
  /// Polls a number of rounds, in seeded order; for stopping in the middle.
  void poll_rounds(int rounds);
  /// Nobody is polled meanwhile.
  void pass_time(Duration time) { now_ = now_ + time; }
  /// Each rank submits what `make` gives it; returns every rank's result.
  std::vector<Status> run_all(const std::function<collective::OpRequest(int32_t rank)>& make);

  /// The rank is never polled again and its streams break. `told`: the others learn at once that
  /// its process has ended, else each when it sees a broken stream.
  void kill(int32_t rank, bool told = true);
  [[nodiscard]] const collective::Aggregator& aggregator(int32_t index) const {
    return *aggregators_[static_cast<size_t>(index)];
  }
  /// An aggregator's process ends: nobody polls it again, and its streams break.
  void kill_aggregator(int32_t index) { aggregators_[static_cast<size_t>(index)].reset(); }
  /// None of them is polled any more, as if stopped by SIGSTOP.
  void pause_aggregators() { aggregators_paused_ = true; }
  /// The rank is not polled until resumed, as if stopped by SIGSTOP.
  void stop(int32_t rank) { live_[static_cast<size_t>(rank)] = false; }
  void resume(int32_t rank) { live_[static_cast<size_t>(rank)] = true; }

 private:
  using Ends = std::pair<std::unique_ptr<transport::Stream>, std::unique_ptr<transport::Stream>>;
  [[nodiscard]] runtime::EngineOptions options_of(size_t rank, int32_t size) const;
  [[nodiscard]] int32_t host_of(size_t member) const;
  /// What engine `of` is given of a member.
  [[nodiscard]] runtime::EnginePeer peer(size_t of, size_t member,
                                         std::unique_ptr<transport::Stream> stream) const;
  Ends connect(size_t a, size_t b);
  void add_aggregators();
  bool poll_once();
  bool last_look();

  WorldOptions options_;
  std::mt19937_64 random_;
  Time now_;
  std::vector<std::shared_ptr<collective::Segment>> segments_;
  std::vector<std::unique_ptr<runtime::Engine>> engines_;
  std::vector<bool> live_;
  std::vector<std::unique_ptr<collective::Aggregator>> aggregators_;  ///< Null: ended.
  bool aggregators_paused_ = false;
  std::map<std::pair<size_t, size_t>, std::shared_ptr<transport::MemoryLink>> links_;
};

}  // namespace corro::testing
