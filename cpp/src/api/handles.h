// What stands behind the handles of corro.h, and what every function of the C ABI does: check that
// the engine may be used, catch, convert errors and structs.
#pragma once

#include <corro/corro.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>

#include "api/fork_guard.h"
#include "base/exception.h"
#include "runtime/join.h"

struct corro_group {
  corro_engine* engine;
  corro::runtime::Group* group;
};

struct corro_work {
  corro_engine* engine;
  std::shared_ptr<corro::runtime::WorkState> state;
  /// Whose micro-batches it waits for, or null. Only while it is not done, and with the baton: the
  /// plan is there as long.
  corro::runtime::LoadedPlan* plan = nullptr;
};

struct corro_engine {
  corro::runtime::Joined joined;
  corro_group world{};
  std::unique_ptr<corro::api::ForkGuard> fork_guard;

  [[nodiscard]] corro::runtime::Driver& driver() const { return *joined.driver; }
};

struct corro_queue {
  /// Works that are not done share it.
  std::shared_ptr<corro::runtime::CompletionQueue> cookies =
      std::make_shared<corro::runtime::CompletionQueue>();
};

struct corro_epochs {
  std::shared_ptr<corro::runtime::EpochLink> link;  ///< Engines use it, too.
};

namespace corro::api {

/// Who waits for a plan looks this often at whether it is served.
constexpr Duration kLook = std::chrono::milliseconds(100);

/// Cuts what does not fit into `size` bytes, and ends it with a NUL. Returns the length of the whole.
inline size_t copy_text(char* into, size_t size, std::string_view whole) {
  if (size > 0) {
    const size_t length = std::min(whole.size(), size - 1);
    whole.copy(into, length);
    into[length] = '\0';
  }
  return whole.size();
}

/// The same for an array.
template <size_t Size>
void copy_text(char (&into)[Size], std::string_view text) {
  (void)copy_text(into, Size, text);
}

/// Fills *error, if there is one, and returns the code.
corro_code report(const Status& status, corro_error* error);

/// Runs a call; a broken contract or an exhausted heap becomes a code, never an exception through
/// C.
template <typename Call>
corro_code guarded(corro_error* error, const Call& call) {
  try {
    return report(call(), error);
  } catch (const std::exception& thrown) {
    return report(status_of(thrown), error);
  }
}

/// FAILED_PRECONDITION for no engine, and for one in a forked child.
[[nodiscard]] Status check_alive(const corro_engine* engine);
/// INVALID_ARGUMENT for a group that this rank is no member of; else as check_alive().
[[nodiscard]] Status check_group(const corro_group* group);

/// Structs grow at their end: a caller with an older, shorter one gets zeros for what it does not
/// know.
template <typename Struct>
[[nodiscard]] Status read_struct(const Struct* given, Struct& full) {
  if (given == nullptr || given->struct_size < sizeof(size_t) ||
      given->struct_size > sizeof(Struct)) {
    return {Code::kInvalidArgument, "struct_size is not that of this version of corro.h"};
  }
  full = {};
  std::memcpy(&full, given, given->struct_size);
  full.struct_size = sizeof(Struct);
  return {};
}

}  // namespace corro::api
