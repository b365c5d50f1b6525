// MemoryStore: a record store for simulations, in the memory of one process and in its time.
//
//   auto records = std::make_shared<MemoryRecords>(now);
//   MemoryStore first(records), second(records);
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "coord/record_store.h"

namespace corro::coord {

/// The state that all handles of one store share. Externally synchronized, together with its handles.
struct MemoryRecords {
  explicit MemoryRecords(std::function<Time()> clock) : now(std::move(clock)) {}

  std::function<Time()> now;
  uint64_t term = 0;  ///< Of the last lead.
  Time end = {};      ///< Of the last lead.
  std::string leader = {};
  std::string record = {};

  [[nodiscard]] bool is_led() const { return now() < end; }
};

/// One coordinator's handle. Its end leaves the lead to its lease, as a coordinator's death does.
class MemoryStore final : public RecordStore {
 public:
  /// Shared by all handles of the store.
  explicit MemoryStore(std::shared_ptr<MemoryRecords> records) : records_(std::move(records)) {}

  /// While it is cut off every call fails with UNAVAILABLE, before it changes anything.
  void cut_off(bool is_cut_off) { is_cut_off_ = is_cut_off; }

  [[nodiscard]] Result<std::optional<uint64_t>> try_lead(const std::string& name) override {
    if (is_cut_off_) return unreachable();
    if (leads()) return std::optional(term_);
    if (records_->is_led()) return std::optional<uint64_t>();
    term_ = ++records_->term;
    records_->leader = name;
    extend();
    return std::optional(term_);
  }

  [[nodiscard]] Result<std::string> leader() override {
    if (is_cut_off_) return unreachable();
    return records_->is_led() ? records_->leader : std::string();
  }

  [[nodiscard]] Result<std::string> read() override {
    if (is_cut_off_) return unreachable();
    return records_->record;
  }

  [[nodiscard]] Status write(const std::string& record) override {
    if (is_cut_off_) return unreachable();
    CORRO_TRY(check_size(record, "memory"));
    CORRO_TRY(check_lead());
    records_->record = record;
    return {};
  }

  [[nodiscard]] Status renew() override {
    if (is_cut_off_) return unreachable();
    CORRO_TRY(check_lead());
    extend();
    return {};
  }

  [[nodiscard]] Time leads_until() const override { return until_; }

  void resign() override {
    if (leads() && !is_cut_off_) records_->end = Time{};
    until_ = Time{};
    term_ = 0;
  }

 private:
  [[nodiscard]] bool leads() const {
    return term_ != 0 && term_ == records_->term && records_->is_led();
  }
  [[nodiscard]] Status check_lead() {
    if (leads()) return {};
    until_ = Time{};
    return not_leading(records_->is_led() ? records_->leader : "", "memory");
  }
  void extend() {
    records_->end = records_->now() + kLeaseTime;
    until_ = records_->end - kLeaseMargin;
  }
  static Status unreachable() { return {Code::kUnavailable, "memory: cut off"}; }

  const std::shared_ptr<MemoryRecords> records_;
  uint64_t term_ = 0;
  Time until_ = {};
  bool is_cut_off_ = false;
};

}  // namespace corro::coord
