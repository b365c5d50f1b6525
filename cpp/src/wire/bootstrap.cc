#include "wire/bootstrap.h"

#include <fmt/format.h>

namespace corro::wire {

Status check_bootstrap_key(std::string_view key) {
  if (!key.empty() && key.size() <= kMaxBootstrapKey) return {};
  return {Code::kInvalidArgument,
          fmt::format("bootstrap key of {} bytes: expected 1 to {}", key.size(), kMaxBootstrapKey)};
}

Status check_bootstrap_put(std::string_view key, BytesView value) {
  CORRO_TRY(check_bootstrap_key(key));
  if (value.size() <= kMaxBootstrapValue) return {};
  return {Code::kInvalidArgument, fmt::format("bootstrap value of {} bytes: expected at most {}",
                                              value.size(), kMaxBootstrapValue)};
}

Status Bootstrap::check_interrupted() const {
  if (!interrupted_ || !interrupted_()) return {};
  return {Code::kCancelled, "interrupted while it waited for other ranks"};
}

}  // namespace corro::wire
