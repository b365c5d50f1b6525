// The manifest of a checkpoint: which tensors there are, where their bytes lie, and what checksums
// the files have. docs/design/0027-checkpoints.md describes the text to the byte.
//
// Each rank writes a part: a manifest of its own file. Rank 0 merges the parts. Both are the same
// text, and only a merged one is complete: its pieces cover every tensor exactly once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "checkpoint/box.h"

namespace corro::checkpoint {

/// A file's checksums are of blocks of this many bytes; its last block is what is left.
inline constexpr uint64_t kBlockBytes = uint64_t{1} << 20U;

/// A box of a tensor as it lies in a file, row-major.
struct Piece {
  uint32_t file = 0;    ///< Index among the manifest's files.
  uint64_t offset = 0;  ///< Of its first byte, in bytes.
  Box box = {};

  friend bool operator==(const Piece&, const Piece&) = default;
};

struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape = {};  ///< Of the whole tensor.
  std::vector<Piece> pieces = {};

  friend bool operator==(const TensorEntry&, const TensorEntry&) = default;
};

struct FileEntry {
  std::string name;
  uint64_t bytes = 0;
  std::vector<uint32_t> checksums = {};  ///< CRC-32C of each block.

  friend bool operator==(const FileEntry&, const FileEntry&) = default;
};

/// A checkpoint on which another one builds.
struct Base {
  uint64_t step = 0;
  uint32_t checksum = 0;  ///< CRC-32C of its manifest: Opened::checksum().

  friend bool operator==(const Base&, const Base&) = default;
};

/// A table's rows after so many steps of it, in files of their own (design 0048).
struct TableEntry {
  std::string name;
  uint64_t steps = 0;                ///< That the table had taken.
  uint64_t rows = 0;                 ///< In all of its files.
  std::vector<uint32_t> files = {};  ///< Indexes among the manifest's files.
  /// The files have what has changed since that one. None: they have all rows.
  std::optional<Base> base = {};

  friend bool operator==(const TableEntry&, const TableEntry&) = default;
};

struct Manifest {
  uint64_t step = 0;
  uint32_t world = 0;         ///< Ranks that have written it.
  std::string values = "{}";  ///< JSON of the user's small values.
  std::vector<FileEntry> files = {};
  std::vector<TensorEntry> tensors = {};
  std::vector<TableEntry> tables = {};

  friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// The number of blocks that a file of so many bytes has.
[[nodiscard]] constexpr uint64_t blocks_of(uint64_t bytes) {
  return (bytes + kBlockBytes - 1) / kBlockBytes;
}

/// Writes the manifest. INVALID_ARGUMENT if its values are no JSON that parse_json() takes, a name is
/// not UTF-8, or the text would have more than plan::kMostJsonBytes, which nobody could read.
[[nodiscard]] Result<std::string> manifest_to_text(const Manifest& manifest);

/// Reads what manifest_to_text() writes. DATA_LOSS "name: ..." if the text is damaged or cut;
/// INVALID_ARGUMENT for a text that is whole and cannot be: pieces outside of their file, say.
[[nodiscard]] Result<Manifest> read_manifest(std::string_view text, std::string_view name);

/// Makes the manifest of all parts out of theirs, in their order; values and world are the first
/// one's. FAILED_PRECONDITION, naming both, if two are of different steps, or two of ranks of
/// different worlds, or describe a tensor or a table differently; DATA_LOSS as check_complete().
[[nodiscard]] Result<Manifest> merge(std::vector<Manifest> parts);

/// DATA_LOSS, naming the tensor, unless the pieces cover each tensor exactly once.
[[nodiscard]] Status check_complete(const Manifest& manifest);

/// The bytes of all tensors.
[[nodiscard]] uint64_t tensor_bytes(const Manifest& manifest);

}  // namespace corro::checkpoint
