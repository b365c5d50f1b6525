// Names for Clang's thread-safety attributes; empty under other compilers. Guarded<T> has them, so
// Clang sees a value locked twice in one function, which would wait for ever.
#pragma once

#if defined(__clang__)
#define CORRO_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define CORRO_THREAD_ATTRIBUTE(x)
#endif

#define CORRO_CAPABILITY(x) CORRO_THREAD_ATTRIBUTE(capability(x))
#define CORRO_SCOPED_CAPABILITY CORRO_THREAD_ATTRIBUTE(scoped_lockable)
#define CORRO_ACQUIRE(...) CORRO_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define CORRO_RELEASE(...) CORRO_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define CORRO_NO_THREAD_ANALYSIS CORRO_THREAD_ATTRIBUTE(no_thread_safety_analysis)
