#include "checkpoint/box.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "base/check.h"

namespace corro::checkpoint {
namespace {

/// Where an element, by its index in the whole tensor, lies in the box; counted in elements.
uint64_t place_in(const Box& box, const Shape& index) {
  uint64_t place = 0;
  for (size_t dim = 0; dim < index.size(); ++dim) {
    place = place * static_cast<uint64_t>(box.shape[dim]) +
            static_cast<uint64_t>(index[dim] - box.offsets[dim]);
  }
  return place;
}

/// What both boxes have; some length is 0 if they share nothing.
Box common_part(const Box& a, const Box& b) {
  Box common = a;
  for (size_t dim = 0; dim < a.shape.size(); ++dim) {
    const int64_t from = std::max(a.offsets[dim], b.offsets[dim]);
    const int64_t to = std::min(a.offsets[dim] + a.shape[dim], b.offsets[dim] + b.shape[dim]);
    common.offsets[dim] = from;
    common.shape[dim] = std::max<int64_t>(0, to - from);
  }
  return common;
}

/// The first dim from which on the common part is dense in both boxes: all later dims are whole.
size_t first_dense_dim(const Box& common, const Box& a, const Box& b) {
  size_t dim = common.shape.size();
  while (dim > 0) {
    --dim;
    if (common.shape[dim] != a.shape[dim] || common.shape[dim] != b.shape[dim]) break;
  }
  return dim;
}

/// Moves to the next index over the first `dims` dims of the box; false behind the last one.
bool advance(Shape& index, const Box& box, size_t dims) {
  for (size_t dim = dims; dim-- > 0;) {
    if (++index[dim] < box.offsets[dim] + box.shape[dim]) return true;
    index[dim] = box.offsets[dim];
  }
  return false;
}

}  // namespace

Box whole_of(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }

uint64_t elements_of(const Shape& shape) {
  return std::accumulate(
      shape.begin(), shape.end(), uint64_t{1},
      [](uint64_t product, int64_t length) { return product * static_cast<uint64_t>(length); });
}

bool is_sensible(const Shape& shape, uint64_t element_bytes) {
  constexpr uint64_t kMost = uint64_t{1} << 62U;
  uint64_t bytes = element_bytes;
  for (const int64_t length : shape) {
    if (length < 0) return false;
    // An empty tensor may have any other length: those are held against the limit all the same.
    const auto factor = std::max<uint64_t>(1, static_cast<uint64_t>(length));
    if (bytes > kMost / factor) return false;
    bytes *= factor;
  }
  return true;
}

bool overlap(const Box& a, const Box& b) { return elements_of(common_part(a, b).shape) > 0; }

std::vector<Stretch> stretches_between(const Box& source, const Box& target,
                                       uint64_t element_bytes) {
  CORRO_CHECK(source.shape.size() == target.shape.size(), source.shape.size());
  const Box common = common_part(source, target);
  std::vector<Stretch> stretches;
  if (elements_of(common.shape) == 0) return stretches;
  const size_t dense = first_dense_dim(common, source, target);
  uint64_t bytes = element_bytes;
  for (size_t dim = dense; dim < common.shape.size(); ++dim)
    bytes *= static_cast<uint64_t>(common.shape[dim]);
  Shape index = common.offsets;
  do {
    stretches.push_back(
        {place_in(source, index) * element_bytes, place_in(target, index) * element_bytes, bytes});
  } while (advance(index, common, dense));
  return stretches;
}

}  // namespace corro::checkpoint
