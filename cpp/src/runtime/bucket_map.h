// BucketMap: what ranks tell each other of a generation, as bytes that are folded by their maximum:
// for each part whether it came, and a word that has to be the same everywhere.
//
// Each byte of the word is followed by its complement. The largest of all bytes and the largest of
// all complements add up to 255 exactly where all ranks have the same byte. A rank that has joined
// says nothing: zeros, which change no maximum.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace corro::runtime {

class BucketMap final {
 public:
  explicit BucketMap(uint32_t parts) : bytes_(parts + 2 * sizeof(uint64_t)), parts_(parts) {}

  /// What is reduced: unsigned bytes.
  [[nodiscard]] std::span<uint8_t> bytes() { return bytes_; }

  void clear() { std::fill(bytes_.begin(), bytes_.end(), uint8_t{0}); }
  void set(uint32_t part, bool came) { bytes_[part] = came ? 1 : 0; }
  void set_word(uint64_t word) {
    for (size_t i = 0; i < sizeof word; ++i) {
      const auto byte = static_cast<uint8_t>(word >> (8 * i));
      bytes_[parts_ + 2 * i] = byte;
      bytes_[parts_ + 2 * i + 1] = static_cast<uint8_t>(255 - byte);
    }
  }

  // Once it is reduced:
  /// Every rank had joined.
  [[nodiscard]] bool all_joined() const {
    return std::all_of(bytes_.begin(), bytes_.end(), [](uint8_t byte) { return byte == 0; });
  }
  [[nodiscard]] bool came_anywhere(uint32_t part) const { return bytes_[part] != 0; }
  [[nodiscard]] bool agrees() const {
    for (size_t i = parts_; i < bytes_.size(); i += 2) {
      if (bytes_[i] + bytes_[i + 1] != 255) return false;
    }
    return true;
  }

 private:
  std::vector<uint8_t> bytes_;
  uint32_t parts_;
};

}  // namespace corro::runtime
