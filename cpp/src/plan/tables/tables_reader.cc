#include <array>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "plan/json.h"
#include "plan/tables/tables_file.h"
#include "plan/yaml.h"

namespace corro::plan {
namespace {

constexpr RealRange kTableBytes{1, 1e18};
constexpr int64_t kMostBatch = int64_t{1} << 31U;
constexpr int64_t kMostRanks = int64_t{1} << 20U;
constexpr int64_t kMostDim = 65'536;

TableNeed read_table(const Json& item, const Place& place, Reading& reading) {
  ObjectReader object(
      item, place, reading,
      {"name", "rows", "dim", "optimizer", "dtype", "ids", "distinct", "placement"});
  TableNeed table;
  table.name = object.text("name");
  table.rows = object.real("rows", {1, 1e18});
  table.dim = static_cast<uint32_t>(object.integer("dim", {1, kMostDim}));
  table.optimizer =
      object.choice<RowOptimizer>("optimizer", kRowOptimizerCount, RowOptimizer::kSgd);
  table.dtype = object.choice<RowDType>("dtype", kRowDTypeCount, RowDType::kF32);
  table.ids = object.real("ids", {1e-6, 1e6}, 1);
  if (object.find("distinct") != nullptr) table.distinct = object.real("distinct", {1e-9, 1});
  if (object.find("placement") != nullptr) {
    table.pinned = object.choice<TablePlace>("placement", kTablePlaceCount);
  }
  return table;
}

void read_list(ObjectReader& top, Tables& tables, Reading& reading) {
  std::set<std::string> names;
  top.list("tables", [&](const Json& item, const Place& place) {
    if (tables.tables.size() == kMostTables) {
      return reading.fail(place, fmt::format("is one table too many; {} are read", kMostTables));
    }
    tables.tables.push_back(read_table(item, place, reading));
    const std::string& name = tables.tables.back().name;
    if (reading.ok() && !names.insert(name).second) {
      reading.fail({&place, "name", {}}, fmt::format("table \"{}\" comes twice", name));
    }
  });
  if (reading.ok() && tables.tables.empty()) {
    reading.fail({nullptr, "tables", {}}, "must list at least one table");
  }
}

}  // namespace

std::string_view name_of(TablePlace place) {
  return place == TablePlace::kServed ? "served" : "replicated";
}

std::string_view name_of(RowOptimizer optimizer) {
  constexpr std::array<std::string_view, kRowOptimizerCount> kNames = {
      "sgd", "momentum", "adagrad", "rowwise_adagrad", "adam", "ftrl"};
  return kNames[static_cast<size_t>(optimizer)];
}

std::string_view name_of(RowDType dtype) {
  constexpr std::array<std::string_view, kRowDTypeCount> kNames = {"f32", "bf16", "f16"};
  return kNames[static_cast<size_t>(dtype)];
}

double row_bytes(const TableNeed& table) {
  const double dim = table.dim;
  const double weights = dim * (table.dtype == RowDType::kF32 ? 4 : 2);
  switch (table.optimizer) {
    case RowOptimizer::kSgd:
      return weights;
    case RowOptimizer::kMomentum:
    case RowOptimizer::kAdagrad:
      return weights + 4 * dim;
    case RowOptimizer::kRowwiseAdagrad:
      return weights + 4;
    case RowOptimizer::kAdam:
      return weights + 8 * dim + 4;
    case RowOptimizer::kFtrl:
      break;
  }
  return weights + 8 * dim;
}

Result<Tables> read_tables(std::string_view text, std::string_view name) {
  CORRO_ASSIGN(const Json document, parse_yaml(text, name));
  Reading reading(name, text);
  check_version(document, "corro_tables", 1, reading);
  CORRO_TRY(reading.status());
  ObjectReader top(document, {}, reading,
                   {"corro_tables", "name", "batch", "ranks", "servers", "replicas", "step",
                    "rank_memory", "server_memory", "tables"});
  Tables tables;
  tables.name = top.text("name", "tables");
  tables.batch = static_cast<uint32_t>(top.integer("batch", {1, kMostBatch}));
  tables.ranks = static_cast<uint32_t>(top.integer("ranks", {1, kMostRanks}, 0));
  tables.servers = static_cast<uint32_t>(top.integer("servers", {1, kMostTableServers}, 0));
  tables.replicas = static_cast<uint32_t>(top.integer("replicas", {0, 3}, 1));
  tables.step = top.quantity("step", Unit::kSeconds, {1e-9, 1e9}, 0);
  tables.rank_memory = top.quantity("rank_memory", Unit::kBytes, kTableBytes, 0);
  tables.server_memory = top.quantity("server_memory", Unit::kBytes, kTableBytes, 0);
  read_list(top, tables, reading);
  CORRO_TRY(reading.status());
  return tables;
}

}  // namespace corro::plan
