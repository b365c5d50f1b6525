// StoreBootstrap: ranks meet in a key-value store that the caller has: a torch Store, anything with
// put and get.
#pragma once

#include <functional>
#include <string>

#include "wire/bootstrap.h"

namespace corro::wire {

/// The callbacks of corro_store (corro.h) as C++ functions, called on the thread that uses the
/// bootstrap.
struct StoreCallbacks {
  /// Stores a value, whether or not the key exists.
  std::function<Status(const std::string& key, BytesView value)> put;
  /// Blocks until the key exists, or `timeout` (at least a millisecond) is over: DEADLINE_EXCEEDED.
  /// Any other failure is the store's own, and ends what asked.
  std::function<Result<Bytes>(const std::string& key, std::chrono::milliseconds timeout)> get;
};

/// Externally synchronized. Knows no secret: whoever can write to the store is not thereby a member
/// of the job.
class StoreBootstrap final : public Bootstrap {
 public:
  explicit StoreBootstrap(StoreCallbacks callbacks) : callbacks_(std::move(callbacks)) {}

  /// Looks first whether the key has another value: stores overwrite silently.
  [[nodiscard]] Status put(std::string_view key, BytesView value) override;
  [[nodiscard]] Result<Bytes> get(std::string_view key, Time deadline) override;
  [[nodiscard]] std::optional<Secret> secret() const override { return std::nullopt; }

 private:
  Result<Bytes> look(const std::string& key, Time deadline);

  StoreCallbacks callbacks_;
};

}  // namespace corro::wire
