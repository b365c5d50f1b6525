// Names for Clang's thread-safety attributes; empty under other compilers.
#pragma once

#if defined(__clang__)
#define CORRO_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define CORRO_THREAD_ATTRIBUTE(x)
#endif

#define CORRO_CAPABILITY(x) CORRO_THREAD_ATTRIBUTE(capability(x))
#define CORRO_SCOPED_CAPABILITY CORRO_THREAD_ATTRIBUTE(scoped_lockable)
#define CORRO_GUARDED_BY(x) CORRO_THREAD_ATTRIBUTE(guarded_by(x))
#define CORRO_REQUIRES(...) CORRO_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define CORRO_ACQUIRE(...) CORRO_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define CORRO_RELEASE(...) CORRO_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define CORRO_TRY_ACQUIRE(...) CORRO_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
#define CORRO_EXCLUDES(...) CORRO_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
