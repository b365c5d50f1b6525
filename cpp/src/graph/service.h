// The nouns of a running plan: a slot of data, a firing of a service, and the ticket that ends it.
//
//   Launch launch = [&](const Firing& firing) {
//     use(firing.inputs[0]->data);
//     executor->complete(firing.ticket);
//   };
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace corro::graph {

using ServiceId = uint32_t;
using ChannelId = uint32_t;
using LaneId = uint32_t;

/// Says which micro-batch of which membership epoch something belongs to; every service fires once
/// for each.
struct Generation {
  uint32_t epoch = 0;
  uint32_t micro = 0;
  friend auto operator<=>(const Generation&, const Generation&) = default;
};

/// A firing, by its place in the order of a plan: generations, and the services of each.
struct Place {
  Generation generation;
  ServiceId service = 0;
  friend auto operator<=>(const Place&, const Place&) = default;
};

/// One preallocated buffer of a channel. Its owner is the executor, which lends it to one firing of
/// the producer, then to the consumers' firings of the same generation.
struct Slot {
  std::span<std::byte> data;  ///< Capacity; empty in plans that only exchange tokens.
  uint64_t size_bytes =
      0;  ///< What the producer wrote: sizes that depend on data stay below the capacity.
  Generation generation;
};

/// Names one firing, for Executor::complete. A ticket is never used twice; a late one is dropped on
/// sight.
struct Ticket {
  uint32_t task = 0;
  uint32_t sequence = 0;
  friend auto operator<=>(const Ticket&, const Ticket&) = default;
};

/// What a launch gets: valid until the firing is complete. A one-shot has no slots.
struct Firing {
  Ticket ticket;
  Generation generation;
  std::span<Slot* const> inputs;   ///< In the order of ServiceSpec::inputs.
  std::span<Slot* const> outputs;  ///< In the order of ServiceSpec::outputs.
};

/// Begins the work and returns at once; the end is reported by Executor::complete, possibly from
/// inside the call.
using Launch = std::function<void(const Firing&)>;

}  // namespace corro::graph
