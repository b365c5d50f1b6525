// All tensors stand one behind the other on a line of bytes. Rank r of W has what lies between the
// marks r/W and (r+1)/W of the line. A mark inside a tensor moves down to the nearest row that
// begins there, and one inside a tensor that is not cut moves to its begin; so two neighbours agree
// on the mark between them.
#include "checkpoint/share.h"

#include <algorithm>

namespace corro::checkpoint {
namespace {

/// How a tensor may be cut: into rows along one dim.
struct Rows {
  size_t dim = 0;
  int64_t count = 1;
  uint64_t bytes = 0;  ///< Of one row.
};

Rows rows_of(const Tensor& tensor) {
  const uint64_t bytes = elements_of(tensor.shape) * size_of(tensor.dtype);
  const auto longer = std::ranges::find_if(tensor.shape, [](int64_t length) { return length > 1; });
  if (bytes < kLeastCutBytes || longer == tensor.shape.end()) return {.bytes = bytes};
  return {.dim = static_cast<size_t>(longer - tensor.shape.begin()),
          .count = *longer,
          .bytes = bytes / static_cast<uint64_t>(*longer)};
}

/// The byte at which rank `rank` begins, before it is moved to a row. No product overflows.
uint64_t mark_of(uint64_t rank, uint64_t world, uint64_t total) {
  return total / world * rank + total % world * rank / world;
}

/// The first row that belongs behind the mark.
int64_t row_at(uint64_t mark, uint64_t begin, const Rows& rows) {
  if (mark <= begin || rows.bytes == 0) return 0;
  return static_cast<int64_t>(
      std::min<uint64_t>((mark - begin) / rows.bytes, static_cast<uint64_t>(rows.count)));
}

}  // namespace

std::vector<Shared> share_of(uint32_t rank, uint32_t world, std::span<const Tensor> tensors) {
  uint64_t total = 0;
  for (const Tensor& tensor : tensors) total += elements_of(tensor.shape) * size_of(tensor.dtype);
  const uint64_t from = mark_of(rank, world, total);
  const uint64_t to = mark_of(rank + uint64_t{1}, world, total);
  const bool is_last = rank + 1 == world;
  std::vector<Shared> share;
  uint64_t begin = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Rows rows = rows_of(tensors[i]);
    const int64_t first = row_at(from, begin, rows);
    // The last mark is the end of all; an empty tensor lies nowhere, and goes to the last rank.
    const int64_t end = is_last ? rows.count : row_at(to, begin, rows);
    begin += rows.bytes * static_cast<uint64_t>(rows.count);
    if (first >= end) continue;
    Box box = whole_of(tensors[i].shape);
    if (rows.count > 1) {
      box.offsets[rows.dim] = first;
      box.shape[rows.dim] = end - first;
    }
    share.push_back({i, std::move(box)});
  }
  return share;
}

}  // namespace corro::checkpoint
