#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "table/local_table.h"
#include "table/service/changes_since_saves.h"
#include "table/service/disk_snapshots.h"
#include "table/service/snapshot_chain.h"
#include "table/service/snapshot_store.h"
#include "table/service/split.h"
#include "table/service/tables.h"

namespace corro::table {
namespace {

class LocalTables final : public Tables {
 public:
  Result<TableNumber> open(const TableSpec& spec, uint32_t /*replicas*/) override {
    const auto found = std::ranges::find(tables_, spec.name, &Kept::name);
    if (found != tables_.end()) {
      CORRO_TRY(check_alike(spec, found->rows->spec()));
      return static_cast<TableNumber>(found - tables_.begin());
    }
    CORRO_ASSIGN(auto rows, LocalTable::create(spec));
    tables_.push_back({spec.name, std::move(rows)});
    return static_cast<TableNumber>(tables_.size() - 1);
  }

  Status pull(TableNumber table, std::span<const uint64_t> ids, std::span<float> values) override {
    return tables_.at(table).rows->pull(ids, values);
  }

  Status prefetch(TableNumber /*table*/, std::span<const uint64_t> /*ids*/,
                  size_t /*most*/) override {
    return {};
  }
  Status wait(TableNumber /*table*/) override { return {}; }

  Status push(TableNumber table, std::span<const uint64_t> ids,
              std::span<const float> gradients) override {
    Kept& kept = tables_.at(table);
    CORRO_TRY(check_finite(kept.rows->spec(), ids, gradients));
    const DistinctKeys keys = distinct(ids);
    kept.since_saves.note(keys.keys);
    CORRO_TRY(
        kept.rows->push(keys.keys, add_up(keys, gradients, kept.rows->spec().dim), kept.steps + 1));
    ++kept.steps;
    return {};
  }

  Status save(TableNumber table, const std::string& folder, const SavePolicy& policy) override {
    Kept& kept = tables_.at(table);
    const SavePolicy fitting = fitting_policy(kept.rows->spec(), policy);
    const auto base = kept.chain.base_for(folder, kept.steps, fitting);
    std::shared_ptr<const ChangedKeys> changed;
    if (fitting.full_every > 1) {
      changed = kept.since_saves.begin_save(kept.steps, kept.rows->stats().rows,
                                            base ? std::optional(base->step) : std::nullopt);
    } else {
      kept.since_saves.stop();
    }
    CORRO_TRY(save_local(folder, *kept.rows, kept.steps, fitting.keep, base, std::move(changed))
                  .with_context("table " + kept.name));
    kept.chain.add(folder, kept.steps, base);
    kept.saved = kept.steps;
    return {};
  }
  Result<std::optional<uint64_t>> wait_for_save(TableNumber table) override {
    return tables_.at(table).saved;
  }
  Status save_into(TableNumber table, const CheckpointPlace& place) override {
    Kept& kept = tables_.at(table);
    kept.parts.insert_or_assign(place.attempt, write_local_part({.attempt = place.attempt,
                                                                 .step = place.step,
                                                                 .steps = kept.steps,
                                                                 .table = place.table,
                                                                 .folder = place.folder},
                                                                *kept.rows));
    return {};
  }
  Result<std::optional<uint32_t>> parts_written(TableNumber table, uint64_t attempt) override {
    const auto taken = tables_.at(table).parts.extract(attempt);
    if (taken.empty()) return std::optional<uint32_t>();
    CORRO_TRY(taken.mapped());
    return std::optional<uint32_t>(1);
  }
  Result<uint64_t> load(TableNumber table, const std::string& folder, uint64_t step,
                        bool weights_only) override {
    Kept& kept = tables_.at(table);
    PageQueue queue;
    CORRO_ASSIGN(kept.loaded, load_rows(folder, step,
                                        {.spec = kept.rows->spec(),
                                         .weights_only = weights_only,
                                         .shards = ShardSet().set()},
                                        queue));
    return kept.loaded->steps;
  }
  Status adopt(TableNumber table) override {
    Kept& kept = tables_.at(table);
    kept.rows = std::move(kept.loaded->rows);
    kept.steps = kept.loaded->steps;
    kept.loaded.reset();
    kept.since_saves.stop();
    kept.chain.forget();
    return {};
  }
  void adopt_steps(TableNumber table, uint64_t steps) override { tables_.at(table).steps = steps; }

  Status set_lr(TableNumber table, float lr) override { return tables_.at(table).rows->set_lr(lr); }
  [[nodiscard]] uint32_t copies(TableNumber) const override { return 1; }
  [[nodiscard]] uint64_t steps(TableNumber table) const override { return tables_.at(table).steps; }

 private:
  struct Kept {
    std::string name;
    std::unique_ptr<LocalTable> rows;
    uint64_t steps = 0;
    ChangesSinceSaves since_saves = {};
    SnapshotChain chain = {};
    std::optional<uint64_t> saved = {};
    std::map<uint64_t, Status> parts = {};  ///< What became of those of checkpoints, by attempt.
    std::optional<LoadedRows> loaded = {};  ///< Until adopt().
  };
  std::vector<Kept> tables_;  ///< By number.
};

}  // namespace

std::unique_ptr<Tables> local_tables() { return std::make_unique<LocalTables>(); }

Status check_finite(const TableSpec& spec, std::span<const uint64_t> ids,
                    std::span<const float> gradients) {
  const auto bad = std::ranges::find_if_not(gradients, [](float g) { return std::isfinite(g); });
  if (bad == gradients.end()) return {};
  const auto at = static_cast<size_t>(bad - gradients.begin());
  return {Code::kInvalidArgument, fmt::format("table {}: the gradient of id {} is {} in element {}",
                                              spec.name, ids[at / spec.dim], *bad, at % spec.dim)};
}

}  // namespace corro::table
