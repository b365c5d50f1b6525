#include "app/keys.h"

#include <array>
#include <utility>

namespace corro::app {
namespace {

constexpr char kEscape = '\x1b';
/// With cursor keys in normal and in application mode.
constexpr std::array<std::pair<std::string_view, Key>, 6> kSequences = {
    {{"\x1b[A", Key::kUp},
     {"\x1b[B", Key::kDown},
     {"\x1bOA", Key::kUp},
     {"\x1bOB", Key::kDown},
     {"\x1b[5~", Key::kPageUp},
     {"\x1b[6~", Key::kPageDown}}};

/// Where a sequence ends that begins with ESC [ or ESC O; 0: not yet.
size_t length_of(std::string_view sequence) {
  for (size_t i = 2; i < sequence.size(); ++i)
    if (sequence[i] >= '@' && sequence[i] <= '~') return i + 1;
  return 0;
}

}  // namespace

size_t KeyReader::take(std::vector<Key>& keys) const {
  if (rest_[0] == 'q' || rest_[0] == 'Q') keys.push_back(Key::kQuit);
  if (rest_[0] != kEscape) return 1;
  if (rest_.size() == 1) return 0;
  if (rest_[1] != '[' && rest_[1] != 'O') return 1;  // The key ESC itself.
  const size_t length = length_of(rest_);
  for (const auto& [sequence, key] : kSequences)
    if (std::string_view(rest_).substr(0, length) == sequence) keys.push_back(key);
  return length;
}

std::vector<Key> KeyReader::feed(std::string_view bytes) {
  rest_ += bytes;
  std::vector<Key> keys;
  while (!rest_.empty()) {
    const size_t taken = take(keys);
    if (taken == 0) break;
    rest_.erase(0, taken);
  }
  return keys;
}

}  // namespace corro::app
