#include "wire/store_bootstrap.h"

#include <thread>

#include "wire/bootstrap_conformance.h"
#include "wire/memory_store.h"

namespace corro::wire {
namespace {

struct StoreMeeting {
  std::unique_ptr<Bootstrap> join(int32_t /*rank*/) {
    return std::make_unique<StoreBootstrap>(store.callbacks());
  }
  MemoryStore store;
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
