// The algorithms of collectives over messages by name, and rules of the user's that choose among
// them. What each does and costs: docs/algorithms.md.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/env.h"
#include "base/status.h"

namespace corro::collective {

/// Values are part of the wire format (the agreed selection table); never renumber.
enum class Algorithm : uint8_t {
  kOneShot = 0,  ///< Everyone sends everything to all, folds locally: allreduce.
  kTwoShot = 1,  ///< Owners of shares fold and send back: allreduce; first half: reducescatter.
  kRing = 2,     ///< Neighbours only: allreduce, reducescatter, allgather, broadcast (a chain).
  kRecursiveDoubling = 3,  ///< Allreduce of small messages for many ranks.
  kRabenseifner = 4,       ///< Halving, then doubling: allreduce.
  kBinomial = 5,           ///< Trees: broadcast, reduce, gather, scatter; barrier (dissemination).
  kDirect = 6,    ///< All at once, to where it belongs: everything but allreduce and reducescatter.
  kBruck = 7,     ///< Few, larger messages: allgather, alltoall with equal counts.
  kTwoLevel = 8,  ///< Shared memory inside hosts, messages among them: all but gather and scatter.
  kServed = 9,    ///< Aggregators own shares, too, or all: allreduce.
};
inline constexpr int kAlgorithmCount = 10;

[[nodiscard]] std::string_view name_of(Algorithm algorithm);  ///< For example "two_shot".
/// True if the algorithm can do operations of this kind.
[[nodiscard]] bool can_do(Algorithm algorithm, OpKind kind);

/// The user's choice for operations of one kind and a range of sizes.
struct SelectionRule {
  OpKind kind = OpKind::kAllreduce;
  Algorithm algorithm = Algorithm::kOneShot;
  uint64_t from = 0;            ///< Bytes: the first size it is about.
  uint64_t until = UINT64_MAX;  ///< Bytes: the first size above, or no end.

  [[nodiscard]] bool covers(OpKind of, uint64_t bytes) const {
    return kind == of && from <= bytes && bytes < until;
  }
  friend bool operator==(const SelectionRule&, const SelectionRule&) = default;
};
inline constexpr size_t kMaxSelectionRules = 32;

/// Reads rules such as "allreduce:64K-4M=ring,broadcast=binomial,alltoall:1M-=direct": an
/// operation, from-until in bytes (K, M, G: 2^10, 2^20, 2^30; either may be missing), an algorithm
/// that can do it. INVALID_ARGUMENT in one line that names the rule, what is wrong and what there
/// is.
[[nodiscard]] Result<std::vector<SelectionRule>> parse_selection_rules(std::string_view text);
/// The rules of CORRO_ALGORITHMS; an error names the variable.
[[nodiscard]] Result<std::vector<SelectionRule>> selection_rules_of(const Environment& environment);

}  // namespace corro::collective
