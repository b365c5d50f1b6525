// For tests: what every record store has to do. A program adds record_store_suite.cc to its sources,
// and for each store a world and one line:
//
//   INSTANTIATE_TEST_SUITE_P(Memory, RecordStoreSuite, ...);
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "coord/record_store.h"

namespace corro::coord {

/// One store, empty at first, and the coordinators that use it.
class RecordStoreWorld {
 public:
  virtual ~RecordStoreWorld() = default;
  /// Why there is no such store here; "" if there is one.
  [[nodiscard]] virtual std::string missing() const { return ""; }
  /// Another coordinator's handle.
  [[nodiscard]] virtual std::unique_ptr<RecordStore> open() = 0;
  /// The store takes the lead from whoever has it, without telling: its lease ends, or a file system
  /// forgets its lock.
  virtual void end_lead() = 0;
  [[nodiscard]] virtual Time now() const { return monotonic_now(); }
};

class RecordStoreSuite : public testing::TestWithParam<std::unique_ptr<RecordStoreWorld> (*)()> {
 protected:
  void SetUp() override {
    if (!world_->missing().empty()) GTEST_SKIP() << world_->missing();
    first_ = world_->open();
    second_ = world_->open();
  }
  /// The term of a lead that has to begin; 0 and a failed test if it does not.
  static uint64_t lead(RecordStore& store, const std::string& name) {
    const Result<std::optional<uint64_t>> term = store.try_lead(name);
    EXPECT_TRUE(term.ok()) << term.status().to_string();
    EXPECT_TRUE(term.ok() && *term) << name << " does not lead";
    return term.ok() ? (*term).value_or(0) : 0;
  }
  static bool is_refused(RecordStore& store) {
    const Result<std::optional<uint64_t>> term = store.try_lead("one too many");
    EXPECT_TRUE(term.ok()) << term.status().to_string();
    return term.ok() && !*term;
  }
  static std::string leader_of(RecordStore& store) {
    const Result<std::string> leader = store.leader();
    return leader.ok() ? *leader : leader.status().to_string();
  }
  static std::string record_of(RecordStore& store) {
    const Result<std::string> record = store.read();
    return record.ok() ? *record : record.status().to_string();
  }
  static void write(RecordStore& store, const std::string& record) {
    const Status written = store.write(record);
    EXPECT_TRUE(written.ok()) << written.to_string();
  }

  const std::unique_ptr<RecordStoreWorld> world_ = GetParam()();
  std::unique_ptr<RecordStore> first_;
  std::unique_ptr<RecordStore> second_;
};

}  // namespace corro::coord
