// A thread of the library's own, in somebody else's program: signals are for the program's threads.
//
//   std::thread mover = start_own_thread("corro-progress", [&driver] { driver.run(); });
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace corro {

/// Starts a thread that no signal is delivered to. `name` has at most 15 bytes. Throws
/// std::system_error where the process may have no more threads.
template <typename Run>
[[nodiscard]] std::thread start_own_thread(const char* name, Run run) {
  sigset_t all_signals, before;
  sigfillset(&all_signals);
  pthread_sigmask(SIG_SETMASK, &all_signals, &before);
  std::thread thread;
  try {
    thread = std::thread(std::move(run));
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace corro
