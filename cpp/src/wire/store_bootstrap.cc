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
  if (existing.status().code() != Code::kDeadlineExceeded)
    return existing.status().with_context(fmt::format("store: put {}", key));
  return callbacks_.put(std::string(key), value).with_context(fmt::format("store: put {}", key));
}

Result<Bytes> StoreBootstrap::get(std::string_view key, Time deadline) {
  CORRO_TRY(check_bootstrap_key(key));
  const std::string name(key);
  auto value = look(name, deadline);
  while (value.status().code() == Code::kDeadlineExceeded && monotonic_now() < deadline) {
    CORRO_TRY(check_interrupted());
    value = look(name, deadline);
  }
  if (!value.ok()) return value.status().with_context(fmt::format("store: get {}", key));
  if (value->size() > kMaxBootstrapValue) {
    return Status(Code::kInvalidArgument,
                  fmt::format("store: get {}: {} bytes are too many", key, value->size()));
  }
  return value;
}

/// Waits for as long as nobody has to ask for an interrupt.
Result<Bytes> StoreBootstrap::look(const std::string& key, Time deadline) {
  const Time now = monotonic_now();
  const Time end = std::min(deadline, now + kInterruptPause);
  // A store's own zero often means "for ever": never less than a millisecond.
  const auto left = std::max(std::chrono::ceil<milliseconds>(end - now), milliseconds(1));
  return callbacks_.get(key, left);
}

}  // namespace corro::wire
