#include "launch/user_input.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "agent/messages.h"

namespace corro::launch {
namespace {

bool is_in_foreground() {
  return isatty(STDIN_FILENO) == 0 || tcgetpgrp(STDIN_FILENO) == getpgrp();
}

}  // namespace

void UserInput::start(io::Loop::Handler handler) {
  handler_ = std::move(handler);
  state_ = State::kBackground;
  look();
}

void UserInput::look() {
  if (state_ != State::kBackground || !is_in_foreground()) return;
  // epoll takes no files: they can always be read.
  state_ = loop_.watch(STDIN_FILENO, EPOLLIN, handler_).ok() ? State::kWatched : State::kFile;
}

void UserInput::take(uint64_t bytes) {
  untaken_ -= std::min(bytes, untaken_);
  if (state_ != State::kFull || untaken_ >= agent::kInputCredit) return;
  state_ = State::kBackground;
  look();
}

std::optional<std::string> UserInput::read() {
  if (state_ != State::kWatched && state_ != State::kFile) return std::nullopt;
  std::array<char, 4096> buffer{};
  const bool may = is_in_foreground();
  const ssize_t count = may ? ::read(STDIN_FILENO, buffer.data(), buffer.size()) : -1;
  if (count > 0) {
    untaken_ += static_cast<size_t>(count);
    if (untaken_ >= agent::kInputCredit) {
      if (state_ == State::kWatched) loop_.forget(STDIN_FILENO);
      state_ = State::kFull;
    }
    return std::string(buffer.data(), static_cast<size_t>(count));
  }
  if (may && count < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  if (state_ == State::kWatched) loop_.forget(STDIN_FILENO);
  // EIO: it went to the background just now.
  state_ = may && (count == 0 || errno != EIO) ? State::kEnded : State::kBackground;
  return state_ == State::kEnded ? std::optional<std::string>("") : std::nullopt;
}

}  // namespace corro::launch
