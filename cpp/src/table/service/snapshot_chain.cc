#include "table/service/snapshot_chain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "checkpoint/writer.h"

namespace corro::table {

SavePolicy fitting_policy(const TableSpec& spec, SavePolicy policy) {
  if (spec.retention.lets_rows_go()) policy.full_every = 1;
  return policy;
}

std::optional<checkpoint::Base> SnapshotChain::base_for(const std::string& folder, uint64_t step,
                                                        const SavePolicy& policy) const {
  const bool goes_on = last_ && folder_ == folder && last_->step < step;
  return goes_on && deltas_ + 1 < policy.full_every ? last_ : std::nullopt;
}

void SnapshotChain::add(const std::string& folder, uint64_t step,
                        const std::optional<checkpoint::Base>& base) {
  last_.reset();
  const auto opened = checkpoint::Opened::open(folder, step);
  if (!opened.ok()) return;  // Nothing builds on it.
  folder_ = folder;
  last_ = checkpoint::Base{.step = step, .checksum = opened->checksum()};
  deltas_ = base ? deltas_ + 1 : 0;
}

Result<const checkpoint::TableEntry*> find_table(const checkpoint::Opened& opened,
                                                 const std::string& table) {
  const std::vector<checkpoint::TableEntry>& tables = opened.manifest().tables;
  const auto found = std::ranges::find(tables, table, &checkpoint::TableEntry::name);
  if (found != tables.end()) return &*found;
  std::vector<std::string_view> names;
  for (const checkpoint::TableEntry& one : tables) names.emplace_back(one.name);
  return Status(
      Code::kInvalidArgument,
      fmt::format("table {}: {} has no table of this name; it has: {}", table, opened.folder(),
                  names.empty() ? "none" : fmt::to_string(fmt::join(names, ", "))));
}

Result<std::vector<checkpoint::Opened>> open_chain(const std::string& folder, uint64_t step,
                                                   const std::string& table) {
  std::vector<checkpoint::Opened> chain;
  CORRO_ASSIGN(checkpoint::Opened newest, checkpoint::Opened::open(folder, step));
  chain.push_back(std::move(newest));
  for (;;) {
    CORRO_ASSIGN(const checkpoint::TableEntry* entry, find_table(chain.back(), table));
    if (!entry->base) break;
    const checkpoint::Base base = *entry->base;  // The vector grows.
    const std::string name = chain.back().folder();
    auto opened = checkpoint::Opened::open(folder, base.step);
    if (!opened.ok())
      return Status(Code::kDataLoss, fmt::format("{} builds on step {}, which is none: {}", name,
                                                 base.step, opened.status().message()));
    if (opened->checksum() != base.checksum)
      return Status(Code::kDataLoss,
                    fmt::format("{} builds on another step {} than there is", name, base.step));
    chain.push_back(std::move(opened).value());
  }
  std::ranges::reverse(chain);
  return chain;
}

Status remove_old_snapshots(const std::string& folder, uint64_t step, size_t keep) {
  CORRO_ASSIGN(std::vector<uint64_t> steps, checkpoint::steps_in(folder));
  std::erase_if(steps, [step](uint64_t one) { return one > step; });
  std::set<uint64_t> needed;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (i >= keep && !needed.contains(steps[i])) continue;
    const auto opened = checkpoint::Opened::open(folder, steps[i]);
    if (!opened.ok()) continue;
    for (const checkpoint::TableEntry& table : opened->manifest().tables)
      if (table.base) needed.insert(table.base->step);
  }
  checkpoint::RealDisk disk;
  return checkpoint::remove_old(disk, folder, step, keep, needed);
}

}  // namespace corro::table
