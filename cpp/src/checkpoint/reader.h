// Reading checkpoints: which there are, and boxes of tensors out of one. A rank reads the blocks
// that it needs, whatever the number of ranks was that wrote them, and every block is held against
// its checksum before a byte of it is handed out.
//
//   CORRO_ASSIGN(const auto steps, steps_in(root));              // newest first
//   CORRO_ASSIGN(const Opened opened, Opened::open(root, steps[0]));
//   CORRO_TRY(opened.read({{.tensor = 0, .box = whole, .memory = data}}));
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/manifest.h"

namespace corro::checkpoint {

/// The steps of which there are checkpoints, newest first. NOT_FOUND if there is no such folder.
[[nodiscard]] Result<std::vector<uint64_t>> steps_in(const std::string& root);

/// Where a box of a tensor is to go.
struct Wanted {
  size_t tensor = 0;  ///< Index among the manifest's tensors.
  Box box;
  std::byte* memory = nullptr;  ///< As many bytes as the box has; row-major.
};

/// A checkpoint whose manifest was read. Immutable; thread-safe.
class Opened {
 public:
  /// Reads the manifest, and looks whether the files are there and as long as it says. DATA_LOSS
  /// if one is damaged, cut or missing: an older checkpoint may do.
  [[nodiscard]] static Result<Opened> open(const std::string& root, uint64_t step);

  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  /// Tells it from another checkpoint of its step: CRC-32C of its manifest.
  [[nodiscard]] uint32_t checksum() const { return checksum_; }
  [[nodiscard]] const std::string& folder() const { return folder_; }

  /// Fills the boxes. DATA_LOSS, naming the file and the block, if the disk has other bytes than
  /// were written: then some of the memory is filled. Blocks.
  [[nodiscard]] Status read(const std::vector<Wanted>& wanted) const;

  /// Reads a whole file, by its index among the manifest's, and calls `take` with its blocks in order,
  /// each one checked: what it returns ends the reading. The same failures.
  [[nodiscard]] Status read_file(
      size_t file, const std::function<Status(std::span<const std::byte>)>& take) const;

  /// Reads every block; the same failures. Calls `progress` with the bytes of each stretch read.
  [[nodiscard]] Status verify(const std::function<void(uint64_t bytes)>& progress) const;

 private:
  Opened(std::string folder, Manifest manifest, uint32_t checksum)
      : folder_(std::move(folder)), manifest_(std::move(manifest)), checksum_(checksum) {}

  std::string folder_;
  Manifest manifest_;
  uint32_t checksum_;
};

}  // namespace corro::checkpoint
