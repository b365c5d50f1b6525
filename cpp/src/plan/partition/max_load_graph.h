// A max-load instance reduced to what the search needs: units that cannot be split, and nets.
//
// A unit is what always shares a device: all nodes of a color, forward and backward, and all colors
// on a cycle of the forward graph. Units that need no time join their neighbour, see contract().
// A net is the output of a node: it costs a device the node's send
// time if the device holds some, but not all, of the net's units. That is the published rule (an
// output that is made or read on the device, and read or made elsewhere, counts once), for an
// output is made in one unit: a device without it holds some units of the net only if it reads the
// output.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/partition/instance.h"

namespace corro::plan {

struct MaxLoadGraph {
  struct Unit {
    bool on_accelerator = true;
    double processor_time = 0;
    double accelerator_time = 0;
    double size = 0;   ///< Bytes that count against an accelerator's memory.
    double bytes = 0;  ///< All bytes: more than `size` if sizes of idle units were ignored.
    std::vector<uint32_t> nodes{};  ///< Of the instance, ascending.
    std::vector<uint32_t> nets{};
  };
  struct Net {
    double send_time = 0;
    uint32_t units = 0;
  };
  std::vector<Unit> units;                          ///< In topological order of the forward graph.
  std::vector<std::vector<uint32_t>> predecessors;  ///< Of each unit, in the forward graph.
  std::vector<Net> nets;                            ///< With two units at least.
};

enum class IdleSizes : uint8_t { kCount, kIgnored };

/// An idle unit needs no time on any device, has at most one neighbour in the forward graph, and
/// all of its nets have that neighbour too. Wherever the neighbour is, the idle unit can be there
/// as well: no load grows, and every stage stays contiguous. So the two become one unit, unless the
/// idle unit needs memory: then it stays alone, or, if sizes of idle units are ignored, joins
/// without its size. With ignored sizes the optimum is a lower bound, and the optimum itself if the
/// split it comes from fits into memory.
[[nodiscard]] MaxLoadGraph contract(const MaxLoadInstance& instance, IdleSizes idle_sizes);

}  // namespace corro::plan
