// Box: a part of a tensor, which begins at some index of each dim and has some length along it. A
// box lies densely, in row-major order, wherever it is kept. The box of a whole tensor begins at 0.
//
//   const Box rows{.offsets = {4, 0}, .shape = {2, 8}};  // rows 4 and 5 of a [N, 8]
//   for (const Stretch& one : stretches_between(rows, Box{{0, 0}, {5, 8}}, 4))
//     memcpy(whole + one.to, part + one.from, one.bytes);  // one stretch: row 4
#pragma once

#include <cstdint>
#include <vector>

namespace corro::checkpoint {

using Shape = std::vector<int64_t>;

/// Externally synchronized. As many offsets as lengths; all are >= 0.
struct Box {
  Shape offsets;
  Shape shape;

  friend bool operator==(const Box&, const Box&) = default;
};

/// The whole of a tensor.
[[nodiscard]] Box whole_of(const Shape& shape);

/// The number of elements; 1 without dims. The caller has made sure that it fits.
[[nodiscard]] uint64_t elements_of(const Shape& shape);

/// True if the shape's bytes fit 62 bits; lengths have to be >= 0.
[[nodiscard]] bool is_sensible(const Shape& shape, uint64_t element_bytes);

/// True if the boxes share an element. They are of one tensor.
[[nodiscard]] bool overlap(const Box& a, const Box& b);

/// Bytes that lie one behind the other in two boxes.
struct Stretch {
  uint64_t from;  ///< Byte offset in the source.
  uint64_t to;    ///< Byte offset in the target.
  uint64_t bytes;

  friend bool operator==(const Stretch&, const Stretch&) = default;
};

/// What the source has of the target, both being of one tensor: as few as possible, in
/// ascending order.
[[nodiscard]] std::vector<Stretch> stretches_between(const Box& source, const Box& target,
                                                     uint64_t element_bytes);

}  // namespace corro::checkpoint
