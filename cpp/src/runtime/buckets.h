// Buckets: the gradients of one optimizer on this rank, and the plan that reduces them.
//
//   CORRO_ASSIGN(auto buckets, Buckets::create(engine, group, parts, {.reduce_op = kAverage}));
//   (void)driver.ready(*buckets, part);  // any thread
//   CORRO_TRY(driver.close(*buckets, generation, 0));
//   CORRO_TRY(driver.wait(*buckets, Buckets::kAll, timeout));
//   CORRO_TRY(buckets->next());
//
// When a bucket may be reduced is the BucketSet's; how it is done is a plan of three services for
// each bucket, and for the map behind them, on P ranks:
//
//   rank 0   fill --.                   .-- land
//   ...              >--- reduce ------<
//   rank P-1 fill --'   (all ranks)     '-- land
//
//   fill    waits until the set allows the round. Parts that never came are zeroed; what is not
//           reduced in place is gathered. In the order of the buckets: while one waits, parts of
//           those behind it may come again, and are reduced with what they hold then.
//   reduce  an allreduce on the one lane that all ranks share: in the order of the buckets.
//   land    scatters what was gathered, tells the set, wakes who waits. The map's looks whether
//           ranks agree; else the plan stops on all of them.
//
// A rank that has joined fills every round with zeros, until a map is of nobody who has not.
//
// A round of the set is a micro-batch of the plan, which begins once a bucket may be reduced. fill
// and land are firings of a lane of this rank, which is this class.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "runtime/bucket_map.h"
#include "runtime/bucket_memory.h"
#include "runtime/bucket_set.h"
#include "runtime/engine.h"
#include "runtime/plan_lane.h"

namespace corro::runtime {

struct BucketOptions {
  ReduceOp reduce_op = ReduceOp::kSum;
  double prescale = 1;
  double postscale = 1;
  std::shared_ptr<const collective::Codec> codec = {};  ///< Of parts that it applies to.
  uint32_t passes = 1;
  Duration timeout{};  ///< Of each reduction; zero: the engine's.
};

/// Methods are the engine's where nothing else is said.
class Buckets final : public PlanLane {
 public:
  static constexpr uint32_t kAll = UINT32_MAX;

  /// Loads the plan. Members make their sets in the same order. INVALID_ARGUMENT names a part that
  /// is wrong.
  [[nodiscard]] static Result<std::unique_ptr<Buckets>> create(Engine& engine, Group& group,
                                                               const std::vector<BucketPart>& parts,
                                                               const BucketOptions& options);
  /// Unloads the plan: reductions in flight end with CANCELLED on all ranks. Not after the group.
  void destroy(Engine& engine);

  // Any thread. Driver's calls of the same names let the engine go on.
  [[nodiscard]] const BucketSet& set() const { return set_; }
  BucketSet::Ready ready(uint32_t part);
  [[nodiscard]] Status refusal(uint32_t part) const;

  // The training thread.
  /// The word of a generation's first close() counts.
  [[nodiscard]] Status close(uint64_t generation, uint64_t word);
  [[nodiscard]] bool over(uint32_t bucket) const;
  /// Blocks until over(), or the plan has failed.
  [[nodiscard]] Status wait(uint32_t bucket, Duration timeout) const;
  [[nodiscard]] Status next();
  /// No gradients come here any more until every rank has said so; wait(kAll) blocks until then.
  /// Of a generation that is not over, what is not on its way counts as zeros.
  [[nodiscard]] Status join();
  [[nodiscard]] bool came_anywhere(uint32_t part) const { return map_.came_anywhere(part); }

  void serve(graph::Executor& executor) override { executor_ = &executor; }
  void start(Time now, const graph::Work& work) override;
  bool poll(Time now) override;
  void stop(const Status& cause, Time now) override;
  [[nodiscard]] bool has_news() const override { return news_.load(std::memory_order_seq_cst); }

 private:
  struct Fill {
    graph::Ticket ticket;
    uint64_t round = 0;
    bool waits = false;
  };
  Buckets(Group& group, const std::vector<BucketPart>& parts, const BucketOptions& options);
  [[nodiscard]] Status open(Engine& engine, const std::vector<BucketPart>& parts);
  [[nodiscard]] graph::Plan make_plan() const;
  [[nodiscard]] LoadOptions load_options();
  bool fill_in_order();
  void fill_bucket(uint32_t bucket, uint64_t round);
  void fill_map(uint64_t round);
  [[nodiscard]] Status land(uint32_t bucket);
  void wake_waiters();
  [[nodiscard]] std::string where() const;

  Group& group_;
  const BucketOptions options_;
  BucketSet set_;
  std::vector<std::vector<uint32_t>> parts_of_;  ///< By bucket: the numbers of its parts.
  std::vector<std::unique_ptr<BucketMemory>> memory_;
  BucketMap map_;
  std::vector<Fill> fills_;
  uint32_t next_fill_ = 0;  ///< Its bucket.
  uint32_t rounds_ = 0;     ///< That have begun.
  graph::Executor* executor_ = nullptr;
  LoadedPlan* plan_ = nullptr;
  std::atomic<uint64_t> word_{0};
  std::atomic<bool> news_{false};
  Status failure_;  ///< Once failed_.
  std::atomic<bool> failed_{false};
  mutable std::atomic<uint32_t> signal_{0};  ///< Changes with every landing; waiters sleep on it.
  mutable std::atomic<uint32_t> waiters_{0};
};

/// INVALID_ARGUMENT with the part and what is wrong with it.
[[nodiscard]] Status check_parts(const std::vector<BucketPart>& parts);

}  // namespace corro::runtime
