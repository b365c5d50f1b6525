#include "table/types.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace corro::table {
namespace {

constexpr std::array<std::string_view, kOptimizerKindCount> kOptimizerNames = {
    "sgd", "momentum", "adagrad", "rowwise_adagrad", "adam", "ftrl"};
constexpr std::array<std::string_view, kInitialKindCount> kInitialNames = {"constant", "uniform",
                                                                           "normal"};

constexpr std::array<std::string_view, kModeCount> kModeNames = {"sync", "bounded", "async"};

std::string_view name_of(InitialKind kind) { return kInitialNames.at(static_cast<size_t>(kind)); }

Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

/// A field, whether its value is good, and what is.
struct Field {
  std::string_view name;
  double value;
  bool good;
  std::string_view range;
};

Status check_fields(const std::string& table, std::span<const Field> fields) {
  const auto bad = std::ranges::find(fields, false, &Field::good);
  if (bad == fields.end()) return {};
  return invalid(fmt::format("table {}: {} is {}, and has to be {}", table, bad->name, bad->value,
                             bad->range));
}

bool in_unit(float x) { return x >= 0 && x < 1; }
bool not_negative(float x) { return x >= 0 && std::isfinite(x); }

Status check_name(const std::string& name) {
  if (name.empty() || name.size() > kMaxNameBytes) {
    return invalid(fmt::format("table: its name has {} bytes, and has to have 1 to {}", name.size(),
                               kMaxNameBytes));
  }
  const bool good = std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_.-/").find(c) != std::string_view::npos;
  });
  if (good) return {};
  return invalid("table: its name has something other than letters, digits, and \"_.-/\"");
}

Status check_optimizer(const std::string& table, const Optimizer& optimizer) {
  if (static_cast<int>(optimizer.kind) >= kOptimizerKindCount) {
    return invalid(fmt::format("table {}: optimizer.kind is {}, and has to be below {}", table,
                               static_cast<int>(optimizer.kind), kOptimizerKindCount));
  }
  constexpr std::string_view kUnit = "in [0, 1)";
  constexpr std::string_view kFinite = "at least 0, and finite";
  const Optimizer& o = optimizer;
  const std::array<Field, 9> fields = {{
      {"optimizer.lr", o.lr, o.lr > 0 && std::isfinite(o.lr), "above 0, and finite"},
      {"optimizer.momentum", o.momentum, in_unit(o.momentum), kUnit},
      {"optimizer.beta1", o.beta1, in_unit(o.beta1), kUnit},
      {"optimizer.beta2", o.beta2, in_unit(o.beta2), kUnit},
      {"optimizer.epsilon", o.epsilon, not_negative(o.epsilon), kFinite},
      {"optimizer.initial_accumulator", o.initial_accumulator, not_negative(o.initial_accumulator),
       kFinite},
      {"optimizer.l1", o.l1, not_negative(o.l1), kFinite},
      {"optimizer.l2", o.l2, not_negative(o.l2), kFinite},
      {"optimizer.beta", o.beta, not_negative(o.beta), kFinite},
  }};
  return check_fields(table, fields);
}

Status check_initial(const std::string& table, const Initial& initial) {
  if (static_cast<int>(initial.kind) >= kInitialKindCount) {
    return invalid(fmt::format("table {}: initial.kind is {}, and has to be below {}", table,
                               static_cast<int>(initial.kind), kInitialKindCount));
  }
  const bool uniform = initial.kind == InitialKind::kUniform;
  const bool high_is_good =
      std::isfinite(initial.high) && (initial.kind == InitialKind::kConstant ||
                                      (uniform ? initial.low < initial.high : initial.high >= 0));
  const std::array<Field, 2> fields = {{
      {"initial.low", initial.low, std::isfinite(initial.low), "finite"},
      {"initial.high", initial.high, high_is_good,
       uniform ? "above initial.low, and finite" : "at least 0, and finite"},
  }};
  return check_fields(table, fields);
}

Status check_retention(const std::string& table, const Retention& retention) {
  const uint64_t bytes = retention.most_bytes;
  const std::array<Field, 3> fields = {{
      {"retention.least_pushes", static_cast<double>(retention.least_pushes),
       retention.least_pushes <= kMaxLeastPushes, "at most 65535"},
      {"retention.idle_steps", static_cast<double>(retention.idle_steps),
       retention.idle_steps <= kMaxIdleSteps, "at most 1000000000"},
      {"retention.most_bytes", static_cast<double>(bytes), bytes == 0 || bytes >= kLeastMostBytes,
       "0 or at least 1048576"},
  }};
  CORRO_TRY(check_fields(table, fields));
  const std::string& spill = retention.spill;
  if (spill.empty()) return {};
  if (bytes == 0)
    return invalid(fmt::format(
        "table {}: with retention.spill, retention.most_bytes says how much stays in memory",
        table));
  if (spill.front() == '/' && spill.size() <= kMaxSpillBytes && spill.find('\0') == spill.npos)
    return {};
  return invalid(
      fmt::format("table {}: retention.spill has to be an absolute path of at most {} "
                  "bytes",
                  table, kMaxSpillBytes));
}

Status check_mode(const TableSpec& spec) {
  if (static_cast<int>(spec.mode) >= kModeCount) {
    return invalid(fmt::format("table {}: mode is {}, and has to be below {}", spec.name,
                               static_cast<int>(spec.mode), kModeCount));
  }
  const uint32_t least = spec.mode == Mode::kBounded ? 1 : 0;
  const uint32_t most = spec.mode == Mode::kSync ? 0 : kMaxStaleness;
  if (spec.staleness >= least && spec.staleness <= most) return {};
  const std::string range = most == 0 ? "0" : fmt::format("{} to {}", least, most);
  return invalid(fmt::format("table {}: staleness is {}, and has to be {} in mode {}", spec.name,
                             spec.staleness, range, name_of(spec.mode)));
}

/// A field of two specs, as text.
struct Pair {
  std::string_view name;
  std::string here;
  std::string there;
};

template <typename Value>
Pair pair_of(std::string_view name, const Value& here, const Value& there) {
  return {name, fmt::format("{}", here), fmt::format("{}", there)};
}

}  // namespace

std::string_view name_of(OptimizerKind kind) {
  return kOptimizerNames.at(static_cast<size_t>(kind));
}

std::optional<OptimizerKind> optimizer_named(std::string_view name) {
  const auto found = std::ranges::find(kOptimizerNames, name);
  if (found == kOptimizerNames.end()) return std::nullopt;
  return static_cast<OptimizerKind>(found - kOptimizerNames.begin());
}

std::string_view name_of(Mode mode) { return kModeNames.at(static_cast<size_t>(mode)); }

Status check(const TableSpec& spec) {
  CORRO_TRY(check_name(spec.name));
  if (spec.dim < 1 || spec.dim > kMaxDim) {
    return invalid(
        fmt::format("table {}: dim is {}, and has to be 1 to {}", spec.name, spec.dim, kMaxDim));
  }
  const DType dtype = spec.dtype;
  if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
    const auto number = static_cast<int>(dtype);
    return invalid(fmt::format("table {}: dtype is {}, and has to be f32, bf16 or f16", spec.name,
                               number < kDTypeCount ? corro::name_of(dtype) : "unknown"));
  }
  CORRO_TRY(check_optimizer(spec.name, spec.optimizer));
  CORRO_TRY(check_initial(spec.name, spec.initial));
  CORRO_TRY(check_retention(spec.name, spec.retention));
  return check_mode(spec);
}

Status check_alike(const TableSpec& here, const TableSpec& there) {
  const Optimizer& a = here.optimizer;
  const Optimizer& b = there.optimizer;
  const std::array<Pair, 22> pairs = {{
      pair_of("name", here.name, there.name),
      pair_of("dim", here.dim, there.dim),
      pair_of("dtype", corro::name_of(here.dtype), corro::name_of(there.dtype)),
      pair_of("seed", here.seed, there.seed),
      pair_of("optimizer.kind", name_of(a.kind), name_of(b.kind)),
      pair_of("optimizer.momentum", a.momentum, b.momentum),
      pair_of("optimizer.beta1", a.beta1, b.beta1),
      pair_of("optimizer.beta2", a.beta2, b.beta2),
      pair_of("optimizer.epsilon", a.epsilon, b.epsilon),
      pair_of("optimizer.initial_accumulator", a.initial_accumulator, b.initial_accumulator),
      pair_of("optimizer.l1", a.l1, b.l1),
      pair_of("optimizer.l2", a.l2, b.l2),
      pair_of("optimizer.beta", a.beta, b.beta),
      pair_of("initial.kind", name_of(here.initial.kind), name_of(there.initial.kind)),
      pair_of("initial.low", here.initial.low, there.initial.low),
      pair_of("initial.high", here.initial.high, there.initial.high),
      pair_of("retention.least_pushes", here.retention.least_pushes, there.retention.least_pushes),
      pair_of("retention.idle_steps", here.retention.idle_steps, there.retention.idle_steps),
      pair_of("retention.most_bytes", here.retention.most_bytes, there.retention.most_bytes),
      pair_of("retention.spill", here.retention.spill, there.retention.spill),
      pair_of("mode", name_of(here.mode), name_of(there.mode)),
      pair_of("staleness", here.staleness, there.staleness),
  }};
  const auto differs =
      std::ranges::find_if(pairs, [](const Pair& pair) { return pair.here != pair.there; });
  if (differs == pairs.end()) return {};
  return invalid(fmt::format("table {}: {} is {} here and {} there", here.name, differs->name,
                             differs->here, differs->there));
}

}  // namespace corro::table
