// For tests: a store like torch's in this process, for ranks that are threads.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "base/guarded.h"
#include "wire/store_bootstrap.h"

namespace corro::wire {

/// put overwrites, get waits. Thread-safe; outlives its callbacks.
class MemoryStore {
 public:
  /// `before_get` runs before each look for a key that may take time; it may block.
  StoreCallbacks callbacks(std::function<void()> before_get = [] {}) {
    StoreCallbacks callbacks;
    callbacks.put = [this](const std::string& key, BytesView value) {
      (*store_.lock())[key] = Bytes(value.begin(), value.end());
      store_.notify_all();
      return Status();
    };
    callbacks.get = [this, before_get = std::move(before_get)](
                        const std::string& key,
                        std::chrono::milliseconds timeout) -> Result<Bytes> {
      EXPECT_GE(timeout.count(), 1) << "zero means for ever in some stores";
      if (timeout > std::chrono::milliseconds(1)) before_get();
      const Time deadline = monotonic_now() + timeout;
      auto held = store_.lock();
      while (!held->contains(key)) {
        if (monotonic_now() >= deadline) return Status(Code::kDeadlineExceeded, "not there");
        held.wait_for(deadline - monotonic_now());
      }
      return held->at(key);
    };
    return callbacks;
  }

 private:
  Guarded<std::map<std::string, Bytes>> store_;
};

}  // namespace corro::wire
