#include "wire/store_bootstrap.h"

#include <fmt/format.h>

#include <algorithm>

namespace corro::wire {

using std::chrono::milliseconds;

Status StoreBootstrap::put(std::string_view key, BytesView value) {
  CORRO_TRY(check_bootstrap_put(key, value));
  const auto existing = callbacks_.get(std::string(key), milliseconds(1));
  if (existing.ok()) {
    if (std::ranges::equal(*existing, value)) return {};
    return {
        Code::kAlreadyExists,
        fmt::format("store: put {}: the key has another value: use a new store, or another prefix "
                    "for each engine",
                    key)};
  }
  return callbacks_.put(std::string(key), value).with_context(fmt::format("store: put {}", key));
}

Result<Bytes> StoreBootstrap::get(std::string_view key, Time deadline) {
  CORRO_TRY(check_bootstrap_key(key));
  // A store's own zero often means "for ever": never less than a millisecond.
  const auto left = std::chrono::ceil<milliseconds>(deadline - monotonic_now());
  auto value = callbacks_.get(std::string(key), std::max(left, milliseconds(1)));
  if (!value.ok()) {
    const bool late = monotonic_now() >= deadline;
    return Status(late ? Code::kDeadlineExceeded : value.status().code(),
                  fmt::format("store: get {}: {}", key, value.status().message()));
  }
  if (value->size() > kMaxBootstrapValue) {
    return Status(Code::kInvalidArgument,
                  fmt::format("store: get {}: {} bytes are too many", key, value->size()));
  }
  return value;
}

}  // namespace corro::wire
