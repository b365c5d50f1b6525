#include "app/planning/long_wait.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

namespace corro::app {

LongWait::LongWait(std::string what) : what_(std::move(what)) {
  if (isatty(STDERR_FILENO) != 0) thread_ = std::thread([this] { watch(); });
}

LongWait::~LongWait() {
  if (!thread_.joinable()) return;
  *over_.lock() = true;
  over_.notify_all();
  thread_.join();
}

void LongWait::watch() {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto end = now() + std::chrono::seconds(1);
  auto over = over_.lock();
  while (!*over && now() < end) (void)over.wait_for(end - now());
  if (*over) return;
  fmt::print(stderr, "{} ...", what_);
  (void)fflush(stderr);
  while (!*over) (void)over.wait_for(std::chrono::hours(1));
  fmt::print(stderr, "\r\x1b[K");
}

}  // namespace corro::app
