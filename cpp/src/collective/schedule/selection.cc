#include "collective/schedule/selection.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "base/check.h"

namespace corro::collective {
namespace {

/// Costs that differ by less are equal but for rounding: the first algorithm of equals is taken.
constexpr double kRounding = 1e-9;

/// The size that rules go by: the same on all ranks.
uint64_t bytes_of(const Problem& problem, uint64_t element_bytes) {
  if (problem.counts.empty()) return problem.count * element_bytes;
  return *std::max_element(problem.counts.begin(), problem.counts.end()) * element_bytes;
}

/// Below it two rounds of words cost more than shares of links bring (docs/design/0054-aggregators.md).
constexpr uint64_t kLeastServedBytes = 4U << 20U;
/// From it on nothing is: in place, a result lies apart until all ranks have theirs.
constexpr uint64_t kTooManyServedBytes = 256U << 20U;

/// What nobody can serve has to be cheaper by more. Aggregators save a third; by a millionth, links
/// as they are measured decide.
constexpr double kWorthNoAggregators = 1e-2;

/// The algorithm whose bits an operation without aggregators gives, if it may be served.
std::optional<Algorithm> order_of(Algorithm algorithm) {
  if (algorithm == Algorithm::kRing) return Algorithm::kRing;
  const bool by_rank = algorithm == Algorithm::kOneShot || algorithm == Algorithm::kTwoShot;
  return by_rank ? std::optional(Algorithm::kTwoShot) : std::nullopt;
}

/// By what the cost of an algorithm is multiplied before it is compared. It depends on nothing but
/// the operation: aggregators may come or leave, and the bits stay.
double handicap(const Problem& problem, uint64_t element_bytes, Algorithm algorithm) {
  const uint64_t bytes = bytes_of(problem, element_bytes);
  const bool may_be_served = problem.kind == OpKind::kAllreduce && bytes >= kLeastServedBytes &&
                             bytes < kTooManyServedBytes;
  return may_be_served && !order_of(algorithm) ? 1 + kWorthNoAggregators : 1.0;
}

/// The last rule that covers it, among those that somebody can follow.
const SelectionRule* rule_for_both(const SelectionTable& table, const Problem& alone,
                                   const Problem& served, uint64_t element_bytes) {
  const uint64_t bytes = bytes_of(alone, element_bytes);
  for (auto rule = table.rules.rbegin(); rule != table.rules.rend(); ++rule) {
    const bool can = supports(rule->algorithm, alone) || supports(rule->algorithm, served);
    if (rule->covers(alone.kind, bytes) && can) return &*rule;
  }
  return nullptr;
}

const SelectionRule* rule_for(const SelectionTable& table, const Problem& problem,
                              uint64_t element_bytes) {
  const uint64_t bytes = bytes_of(problem, element_bytes);
  for (auto rule = table.rules.rbegin(); rule != table.rules.rend(); ++rule) {
    if (rule->covers(problem.kind, bytes) && supports(rule->algorithm, problem)) return &*rule;
  }
  return nullptr;
}

// -- The table as text ------------------------------------------------------------------------

Problem even_problem(OpKind kind, const Topology& topology, uint64_t bytes) {
  return {.kind = kind,
          .size = topology.size(),
          .count = bytes,
          .chunk_count = kPipelineChunkBytes,
          .topology = &topology};
}

/// Sizes between which the choice changes at most once, nearly: powers of two, and where rules
/// begin and end.
std::set<uint64_t> sizes_to_look_at(const SelectionTable& table, OpKind kind) {
  constexpr uint32_t kLargest = 32;
  std::set<uint64_t> sizes;
  for (uint32_t i = 0; i <= kLargest; ++i) sizes.insert(uint64_t{1} << i);
  const uint64_t end = *sizes.rbegin();
  for (const SelectionRule& rule : table.rules) {
    if (rule.kind != kind) continue;
    for (const uint64_t edge : {rule.from, rule.until}) {
      if (edge > 1 && edge < end) sizes.insert({edge - 1, edge});
    }
  }
  return sizes;
}

/// A run of sizes, from its first one on.
struct Row {
  uint64_t from = 0;
  Algorithm algorithm = Algorithm::kDirect;
  bool ruled = false;
  [[nodiscard]] bool same_choice(const Row& other) const {
    return algorithm == other.algorithm && ruled == other.ruled;
  }
};

Row row_at(const SelectionTable& table, OpKind kind, const Topology& topology, uint64_t bytes) {
  const Problem problem = even_problem(kind, topology, bytes);
  return {bytes, choose(table, problem, 1), rule_for(table, problem, 1) != nullptr};
}

std::vector<Row> rows_of(const SelectionTable& table, OpKind kind, const Topology& topology) {
  if (kind == OpKind::kBarrier) return {row_at(table, kind, topology, 0)};
  std::vector<Row> rows;
  uint64_t below = 0;  // The last size looked at.
  for (const uint64_t bytes : sizes_to_look_at(table, kind)) {
    Row row = row_at(table, kind, topology, bytes);
    if (rows.empty()) {
      rows.push_back(row);
    } else if (!row.same_choice(rows.back())) {
      for (uint64_t low = below; row.from - low > 1;) {
        const Row middle = row_at(table, kind, topology, low + (row.from - low) / 2);
        if (middle.same_choice(rows.back())) {
          low = middle.from;
        } else {
          row = middle;
        }
      }
      rows.push_back(row);
    }
    below = bytes;
  }
  return rows;
}

// -- The table on the wire ----------------------------------------------------------------------

constexpr uint32_t kSameHostMeasured = 1, kOtherHostMeasured = 2;

Status refused(const char* what) {
  return {Code::kInvalidArgument, fmt::format("selection table: {}", what)};
}

/// A time as a bit pattern; nothing for one that no link has.
std::optional<double> read_us(ByteReader& reader) {
  constexpr double kHour = 3.6e9;
  const auto bits = reader.read<uint64_t>();
  if (!bits) return std::nullopt;
  const auto value = std::bit_cast<double>(*bits);
  if (!(value >= 0 && value <= kHour) || std::signbit(value)) return std::nullopt;
  return value;
}

std::optional<SelectionRule> read_rule(ByteReader& reader) {
  const auto kind = reader.read<uint8_t>();
  const auto algorithm = reader.read<uint8_t>();
  const auto from = reader.read<uint64_t>();
  const auto until = reader.read<uint64_t>();
  if (!until || *kind >= kOpKindCount || *algorithm >= kAlgorithmCount) return std::nullopt;
  const SelectionRule rule{static_cast<OpKind>(*kind), static_cast<Algorithm>(*algorithm), *from,
                           *until};
  const bool sensible =
      !is_pair(rule.kind) && can_do(rule.algorithm, rule.kind) && rule.from < rule.until;
  return sensible ? std::optional(rule) : std::nullopt;
}

}  // namespace

Algorithm choose(const SelectionTable& table, const Problem& problem, uint64_t element_bytes) {
  // Counts of an uneven alltoall differ from rank to rank, so they may not decide; nor do they have
  // to.
  if (problem.kind == OpKind::kAlltoall && !problem.counts.empty()) return Algorithm::kDirect;
  if (const SelectionRule* rule = rule_for(table, problem, element_bytes)) return rule->algorithm;
  auto best = Algorithm::kDirect;
  double least = std::numeric_limits<double>::infinity();
  const AlgorithmCosts costs = modelled_costs_us(problem, element_bytes, table.links);
  for (size_t i = 0; i < costs.size(); ++i) {
    const auto algorithm = static_cast<Algorithm>(i);
    const double cost = costs[i] * handicap(problem, element_bytes, algorithm);
    if (cost < least * (1 - kRounding)) {
      least = cost;
      best = algorithm;
    }
  }
  CORRO_CHECK(least != std::numeric_limits<double>::infinity(), name_of(problem.kind), problem.size,
              problem.rank);
  return best;
}

std::optional<Problem> choose_served(const SelectionTable& table, const Problem& problem,
                                     int32_t aggregators, const Topology& with_aggregators,
                                     uint64_t element_bytes) {
  if (problem.kind != OpKind::kAllreduce || problem.size < 2) return std::nullopt;
  const Algorithm alone = choose(table, problem, element_bytes);
  const auto order = order_of(alone);
  if (!order) return std::nullopt;
  Problem served = served_problem(problem, aggregators, *order, problem.rank);
  served.topology = &with_aggregators;
  if (!supports(Algorithm::kServed, served)) return std::nullopt;
  if (const auto* rule = rule_for_both(table, problem, served, element_bytes)) {
    return rule->algorithm == Algorithm::kServed ? std::optional(served) : std::nullopt;
  }
  const uint64_t bytes = bytes_of(problem, element_bytes);
  if (bytes < kLeastServedBytes || bytes >= kTooManyServedBytes) return std::nullopt;
  const auto cost = [&](const Problem& of, Algorithm algorithm) {
    return modelled_costs_us(of, element_bytes, table.links)[static_cast<size_t>(algorithm)];
  };
  const bool less = cost(served, Algorithm::kServed) < cost(problem, alone) * (1 - kRounding);
  return less ? std::optional(served) : std::nullopt;
}

Topology with_aggregators(const Topology& contributors, int32_t aggregators) {
  std::vector<int32_t> hosts;
  for (int32_t r = 0; r < contributors.size(); ++r) hosts.push_back(contributors.host_of(r));
  for (int32_t i = 0; i < aggregators; ++i) hosts.push_back(contributors.hosts() + i);
  return Topology(hosts).without_shared_memory();
}

std::string describe_served(const SelectionTable& table, const Topology& topology,
                            int32_t aggregators) {
  const Topology all = with_aggregators(topology, aggregators);
  const auto is_served = [&](uint64_t bytes) {
    const Problem problem = even_problem(OpKind::kAllreduce, topology, bytes);
    return choose_served(table, problem, aggregators, all, 1).has_value();
  };
  std::optional<uint64_t> least;
  std::string text;
  const auto add = [&](const std::string& sizes) {
    text += fmt::format("allreduce of {}: served by {} aggregator{}\n", sizes, aggregators,
                        aggregators == 1 ? "" : "s");
  };
  for (const uint64_t bytes : sizes_to_look_at(table, OpKind::kAllreduce)) {
    if (is_served(bytes) == least.has_value()) continue;
    if (least)
      add(fmt::format("{} to {} bytes", *std::exchange(least, std::nullopt), bytes - 1));
    else
      least = bytes;
  }
  if (least) add(fmt::format("{} bytes and more", *least));
  return text;
}

std::string describe(const SelectionTable& table, const Topology& topology) {
  if (topology.size() == 1) return "1 rank: nothing to exchange\n";
  const bool several = topology.hosts() > 1;
  const LinkModel& link = several ? table.links.other_host : table.links.same_host;
  std::string text = fmt::format(
      "{} ranks{} that exchange messages: latency {:.1f} us, overhead {:.2f} us a message, {:.0f} "
      "MB/s ({})\n{:<14} {:>10}  {:<19} {:>12}\n",
      topology.size(), several ? fmt::format(" on {} hosts", topology.hosts()) : "",
      link.latency_us, link.overhead_us, 1 / link.us_per_byte,
      link.measured ? "measured when the job started" : "assumed", "operation", "from bytes",
      "algorithm", "predicted us");
  for (int i = 0; i < kOpKindCount; ++i) {
    const auto kind = static_cast<OpKind>(i);
    if (is_pair(kind)) continue;
    bool first = true;
    for (const Row& row : rows_of(table, kind, topology)) {
      const AlgorithmCosts costs =
          modelled_costs_us(even_problem(kind, topology, row.from), 1, table.links);
      text +=
          fmt::format("{:<14} {:>10}  {:<19} {:>12.1f}{}\n", first ? name_of(kind) : "", row.from,
                      name_of(row.algorithm), costs[static_cast<size_t>(row.algorithm)],
                      row.ruled ? "  CORRO_ALGORITHMS" : "");
      first = false;
    }
  }
  return text;
}

Bytes encode(const SelectionTable& table) {
  CORRO_CHECK(table.rules.size() <= kMaxSelectionRules, table.rules.size());
  ByteWriter writer;
  for (const LinkModel& link : {table.links.same_host, table.links.other_host}) {
    for (const double us : {link.latency_us, link.overhead_us, link.us_per_byte})
      writer.write(std::bit_cast<uint64_t>(us));
  }
  writer.write((table.links.same_host.measured ? kSameHostMeasured : 0U) |
               (table.links.other_host.measured ? kOtherHostMeasured : 0U));
  writer.write(static_cast<uint32_t>(table.rules.size()));
  for (const SelectionRule& rule : table.rules) {
    writer.write(static_cast<uint8_t>(rule.kind));
    writer.write(static_cast<uint8_t>(rule.algorithm));
    writer.write(rule.from);
    writer.write(rule.until);
  }
  Bytes bytes = writer.take();
  bytes.resize(kEncodedTableBytes);
  return bytes;
}

Result<SelectionTable> decode_selection_table(BytesView bytes) {
  if (bytes.size() != kEncodedTableBytes) return refused("wrong size");
  ByteReader reader(bytes);
  SelectionTable table;
  for (LinkModel* link : {&table.links.same_host, &table.links.other_host}) {
    for (double* us : {&link->latency_us, &link->overhead_us, &link->us_per_byte}) {
      const auto value = read_us(reader);
      if (!value) return refused("impossible time");
      *us = *value;
    }
    if (link->us_per_byte == 0) return refused("impossible time");
  }
  const auto measured = reader.read<uint32_t>();
  const auto rules = reader.read<uint32_t>();
  constexpr uint32_t kAll = kSameHostMeasured | kOtherHostMeasured;
  if (*measured > kAll || *rules > kMaxSelectionRules) return refused("impossible number");
  table.links.same_host.measured = (*measured & kSameHostMeasured) != 0;
  table.links.other_host.measured = (*measured & kOtherHostMeasured) != 0;
  for (uint32_t i = 0; i < *rules; ++i) {
    const auto rule = read_rule(reader);
    if (!rule) return refused("impossible rule");
    table.rules.push_back(*rule);
  }
  const auto rest = *reader.read_bytes(reader.remaining());
  if (std::any_of(rest.begin(), rest.end(), [](std::byte b) { return b != std::byte{0}; }))
    return refused("bytes after the rules");
  return table;
}

}  // namespace corro::collective
