// Which algorithm runs an operation over messages: the least modelled cost for the links as they
// were measured, or what the user's rules say. A pure function of what all ranks have agreed on.
//
//   SelectionTable table{.links = measured, .rules = rules};
//   Algorithm algorithm = choose(table, problem, size_of(dtype));
//   std::cout << describe(table, topology);
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "collective/schedule/algorithm.h"
#include "collective/schedule/schedule.h"

namespace corro::collective {

/// Latency and bandwidth of the links of one class, as if all of it were alike.
struct LinkModel {
  double latency_us = 20;  ///< One message, one way.
  double overhead_us = 1;  ///< CPU time per message.
  double us_per_byte = 1.0 / 1500;
  bool measured = false;  ///< Not the built-in assumption.
  friend bool operator==(const LinkModel&, const LinkModel&) = default;
};

/// The links of a job, by class.
struct LinkModels {
  LinkModel same_host;   ///< Messages between two ranks of one host.
  LinkModel other_host;  ///< The link of a host, which all its ranks use together.
  friend bool operator==(const LinkModels&, const LinkModels&) = default;
};

/// Microseconds, by Algorithm.
using AlgorithmCosts = std::array<double, kAlgorithmCount>;

/// Predicts the times of an operation from closed forms (docs/algorithms.md); infinite for an
/// algorithm that it does not support. Without a topology all ranks are on one host.
[[nodiscard]] AlgorithmCosts modelled_costs_us(const Problem& problem, uint64_t element_bytes,
                                               const LinkModels& links);

/// What the ranks of a job agree on before they choose algorithms. Immutable value.
struct SelectionTable {
  LinkModels links = {};
  std::vector<SelectionRule> rules = {};  ///< Of those that cover a size, the last counts.
  friend bool operator==(const SelectionTable&, const SelectionTable&) = default;
};

/// Messages of a pipeline have at most so many bytes.
inline constexpr uint64_t kPipelineChunkBytes = 256U << 10U;

/// Returns the algorithm of a rule that covers the operation's size (bytes of `count` elements, or
/// of the largest of `counts`), else the one with the least modelled cost among those admitted; the
/// first of equals. Uses only what all ranks agree on, so every rank of a group gets the same
/// answer. Every algorithm gives all ranks the same bits; only those with the same
/// Schedule::order, but kOther, give the same bits as each other.
[[nodiscard]] Algorithm choose(const SelectionTable& table, const Problem& problem,
                               uint64_t element_bytes);

/// The same choice where `aggregators`, each on a host of its own, stand beside the contributors
/// that `problem` is about: what is done with them, or none where contributors do better alone. What
/// they take part in gives the bits of what choose() says, so their number is no part of a result.
[[nodiscard]] std::optional<Problem> choose_served(const SelectionTable& table,
                                                   const Problem& problem, int32_t aggregators,
                                                   const Topology& with_aggregators,
                                                   uint64_t element_bytes);
/// A topology, and aggregators on hosts of their own.
[[nodiscard]] Topology with_aggregators(const Topology& contributors, int32_t aggregators);

/// The table for a group of these hosts' ranks as text: for each operation the sizes at which the
/// algorithm changes, and the predicted times. Ends with a line feed.
[[nodiscard]] std::string describe(const SelectionTable& table, const Topology& topology);
/// From how many bytes on an allreduce of so many aggregators is served: a line, or nothing.
[[nodiscard]] std::string describe_served(const SelectionTable& table, const Topology& topology,
                                          int32_t aggregators);

/// A table on the wire has this size, whatever is in it (docs/wire.md).
inline constexpr size_t kEncodedTableBytes = 56 + kMaxSelectionRules * 18;
/// Requires at most kMaxSelectionRules.
[[nodiscard]] Bytes encode(const SelectionTable& table);
/// INVALID_ARGUMENT for what encode() does not write.
[[nodiscard]] Result<SelectionTable> decode_selection_table(BytesView bytes);

}  // namespace corro::collective
