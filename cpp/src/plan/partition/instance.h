// The two published kinds of partitioning instances, as read from their files.
//
// Nodes are numbered 0, 1, ... in the order of the file; `ids` keeps the numbers that the file
// gives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace corro::plan {

inline constexpr size_t kMostPartitionNodes = 20'000;
inline constexpr size_t kMostPartitionEdges = 200'000;
inline constexpr uint32_t kMostPartitionDevices = 65'536;
inline constexpr uint64_t kMostMicroBatches = 1'000'000'000;
inline constexpr size_t kMostChoices = 16;
inline constexpr size_t kMostDegrees = 32;
/// The largest time, size or bandwidth: the sum of all of them is still finite.
inline constexpr double kMostQuantity = 1e30;
/// The smallest bandwidth and memory: a quotient is still finite, too.
inline constexpr double kLeastPositive = 1e-9;

/// Splits a graph over accelerators and processors so that the largest load is smallest. Format and
/// objective: Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph Operators",
/// NeurIPS 2020 (maximum load, contiguous splits).
struct MaxLoadInstance {
  struct Node {
    bool on_accelerator = true;       ///< False: only a processor can run this node.
    bool backward = false;            ///< Part of the backward pass.
    double processor_time = 0;        ///< On a processor.
    double accelerator_time = 0;      ///< On an accelerator.
    double size = 0;                  ///< Bytes on an accelerator.
    double send_time = 0;             ///< Moves the output between an accelerator and host memory.
    uint32_t color = 0;               ///< Nodes of one color stay together.
    std::vector<uint32_t> readers{};  ///< Nodes that read the output.
  };
  std::vector<int64_t> ids;
  std::vector<Node> nodes;
  uint32_t colors = 0;
  uint32_t accelerators = 0;
  uint32_t processors = 0;
  double memory_bytes = 0;  ///< Of one accelerator.
};

/// Splits layers into the stages of a pipeline, each with data and tensor parallel degrees, so that
/// the time per sample is smallest. Format and objective: Tarnawski, Narayanan, Phanishayee,
/// "Piper: Multidimensional Planner for DNN Parallelization", NeurIPS 2021.
struct PiperInstance {
  /// One way to run a layer on `tensor_parallel` devices.
  struct Choice {
    std::string id;
    double time = 0;              ///< Seconds per sample.
    double parameter_bytes = 0;   ///< Exchanged by data parallel replicas.
    double memory_in_flight = 0;  ///< Bytes for each micro-batch in flight.
    double memory_fixed = 0;      ///< Bytes.
    /// Bytes that each edge costs on top if it is cut; in the order of `Node::in` and `Node::out`.
    std::vector<double> sync_in;
    std::vector<double> sync_out;
  };
  struct Edge {
    uint32_t node = 0;  ///< The node at the other end.
    double bytes = 0;
  };
  struct Node {
    std::vector<Edge> in;
    std::vector<Edge> out;
    /// By the number in `degrees`; an empty list: this degree is impossible.
    std::vector<std::vector<Choice>> choices;
  };
  std::vector<int64_t> ids;
  std::vector<Node> nodes;
  std::vector<uint32_t> degrees;  ///< Tensor parallel degrees, ascending.
  uint32_t devices = 0;
  uint64_t micro_batches = 0;
  double memory_bytes = 0;  ///< Of one device.
  double bandwidth = 0;     ///< Bytes per second.
};

struct PartitionInstance {
  std::string name;  ///< Begins each message about this instance.
  std::variant<MaxLoadInstance, PiperInstance> problem;
};

}  // namespace corro::plan
