#include "wire/store_bootstrap.h"

#include <map>
#include <thread>

#include "base/guarded.h"
#include "wire/bootstrap_conformance.h"

namespace corro::wire {
namespace {

/// A store like torch's: put overwrites, get waits.
struct StoreMeeting {
  std::unique_ptr<Bootstrap> join(int32_t /*rank*/) {
    StoreCallbacks callbacks;
    callbacks.put = [this](const std::string& key, BytesView value) {
      (*store.lock())[key] = Bytes(value.begin(), value.end());
      store.notify_all();
      return Status();
    };
    callbacks.get = [this](const std::string& key,
                           std::chrono::milliseconds timeout) -> Result<Bytes> {
      EXPECT_GE(timeout.count(), 1) << "zero means for ever in some stores";
      const Time deadline = monotonic_now() + timeout;
      auto held = store.lock();
      while (!held->contains(key)) {
        if (monotonic_now() >= deadline) return Status(Code::kDeadlineExceeded, "not there");
        held.wait_for(deadline - monotonic_now());
      }
      return held->at(key);
    };
    return std::make_unique<StoreBootstrap>(std::move(callbacks));
  }
  Guarded<std::map<std::string, Bytes>> store;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Store, BootstrapConformance, StoreMeeting);

TEST(StoreBootstrap, FailuresOfTheStoreKeepTheirReason) {
  StoreCallbacks callbacks;
  callbacks.put = [](const std::string&, BytesView) {
    return Status(Code::kUnavailable, "store is gone");
  };
  callbacks.get = [](const std::string&, std::chrono::milliseconds) -> Result<Bytes> {
    return Status(Code::kUnavailable, "store is gone");
  };
  StoreBootstrap bootstrap(callbacks);
  EXPECT_EQ(bootstrap.put("k", {}).message(), "store: put k: store is gone");
  EXPECT_EQ(bootstrap.get("k", Time::never()).status().code(), Code::kUnavailable);
  callbacks.get = [](const std::string&, std::chrono::milliseconds) -> Result<Bytes> {
    return Status(Code::kDeadlineExceeded, "not there");
  };
  StoreBootstrap full(std::move(callbacks));
  EXPECT_EQ(full.put("k", {}).message(), "store: put k: store is gone");
  EXPECT_FALSE(bootstrap.secret().has_value());
}

TEST(StoreBootstrap, AStoreThatNeedsLongToFailHasFailed) {
  StoreCallbacks callbacks;
  callbacks.get = [](const std::string&, std::chrono::milliseconds timeout) -> Result<Bytes> {
    std::this_thread::sleep_for(timeout + std::chrono::milliseconds(1));
    return Status(Code::kUnavailable, "store is gone");
  };
  StoreBootstrap bootstrap(std::move(callbacks));
  EXPECT_EQ(bootstrap.get("k", Time::never()).status().code(), Code::kUnavailable);
}

TEST(StoreBootstrap, ValuesAboveTheCapAreRefused) {
  StoreCallbacks callbacks;
  callbacks.get = [](const std::string&, std::chrono::milliseconds) -> Result<Bytes> {
    return Bytes(kMaxBootstrapValue + 1);
  };
  StoreBootstrap bootstrap(std::move(callbacks));
  EXPECT_EQ(bootstrap.get("k", Time::never()).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace corro::wire
