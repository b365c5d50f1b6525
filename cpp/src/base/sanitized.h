// sanitized.h: whether this is a build under a sanitizer, which runs 10 to 30 times as slowly.
// Tests that go through every size or many seeds take a sample of them there; other builds take
// all.
#pragma once

namespace corro {

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace corro
