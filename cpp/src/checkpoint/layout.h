// Where a rank's boxes lie in its file. The file is a safetensors file: eight bytes with the length
// of a JSON header (little-endian), the header, and the boxes one behind the other. A box that is a
// whole tensor has the tensor's name in the header; another has its ranges behind the name:
// "weight[0:512,0:64]". Larger elements lie first, so each box is aligned to its elements, and
// the header is padded with spaces until the data begins at a page.
//
//   const Layout layout = make_layout(rank, {{"w", DType::kF32, {4, 8}, whole_of({4, 8})}});
//   memcpy(image + layout.offsets[0], w, 128);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/manifest.h"

namespace corro::checkpoint {

inline constexpr uint64_t kPageBytes = 4096;

/// A box that a rank has, and what it is a part of.
struct Owned {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;  ///< Of the whole tensor.
  Box box;
};

struct Layout {
  std::string header;             ///< The file's first bytes: whole pages.
  std::vector<uint64_t> offsets;  ///< Of each box that was given, from the begin of the file.
  uint64_t bytes = 0;             ///< Of the whole file.
};

/// Returns the layout of a rank's boxes. INVALID_ARGUMENT for a name that is not UTF-8.
[[nodiscard]] Result<Layout> make_layout(const std::vector<Owned>& boxes);

/// Returns the rank's part of the manifest: everything but the file's checksums.
[[nodiscard]] Manifest part_of(uint64_t step, uint32_t rank, uint32_t world, std::string values,
                               const std::vector<Owned>& boxes, const Layout& layout);

}  // namespace corro::checkpoint
