// Fabric: how the members of one lane exchange bytes. A group asks its fabric and never which one
// it is.
//
//   auto operation = fabric.start(op, request, false);
//   while (operation->poll(true) != Progress::kDone) {}
//   fabric.set_completed(op + 1);
//
// BoardFabric: all members share a host's memory. LinkFabric: schedules over endpoints.
// TwoLevelFabric: schedules over endpoints and the memory of a host.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "collective/board/board_exchange.h"
#include "collective/board/segment_pool.h"
#include "collective/operation/operation.h"
#include "collective/operation/request.h"

namespace corro::collective {

struct FabricTraits {
  bool by_messages = false;    ///< Operations use endpoints; else shared memory alone.
  bool by_rank_order = false;  ///< Folds go by rank wherever an element lies in its buffer.
};

/// Of one lane of one group; ids of operations count from 0. Loop-confined.
class Fabric {
 public:
  /// `size`: ranks of the group. The pool outlives it.
  Fabric(int32_t size, SegmentPool& scratch) : size_(size), scratch_(scratch) {}
  virtual ~Fabric() = default;
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  [[nodiscard]] virtual FabricTraits traits() const = 0;
  /// How operations of each size run, as text for people.
  [[nodiscard]] virtual std::string describe() const = 0;
  /// A collective, moved by its poll(). The request is borrowed and outlives it. `published`:
  /// begin_now() has begun it already. One with a codec travels in its small form.
  [[nodiscard]] std::unique_ptr<Operation> start(uint64_t op, const OpRequest& request,
                                                 bool published);
  /// Begins a small collective without a codec, and without memory of its own: true if `exchange`
  /// holds it. Nothing else may be in flight on the lane.
  virtual bool begin_now(uint64_t op, const OpRequest& request,
                         std::optional<BoardExchange>& exchange) = 0;
  /// Operations below `op` are over here.
  virtual void set_completed(uint64_t op) = 0;
  /// The group failed here: tells members that wait in an operation, as far as memory reaches.
  /// False if another member has said so before.
  virtual bool set_failed(Code code, int32_t culprit_world_rank) = 0;
  /// What a member did last on this lane, for messages.
  [[nodiscard]] virtual std::string last_operation_of(int32_t r) const = 0;
  /// This rank is out of the lane, after its last operation. True once no member can look at the
  /// lane's memory here any more; asked again until then. `gone`: world ranks that are no more.
  [[nodiscard]] virtual bool leave(const std::function<bool(int32_t world_rank)>& gone) = 0;

 private:
  /// start() of a request without a codec.
  [[nodiscard]] virtual std::unique_ptr<Operation> start_plain(uint64_t op,
                                                               const OpRequest& request,
                                                               bool published) = 0;

  const int32_t size_;
  SegmentPool& scratch_;
};

}  // namespace corro::collective
