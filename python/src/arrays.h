// Arrays: what the engine has to know of an array of Python's: pointer, dtype, shape, contiguity,
// device, writability. No rule stands here: an array that the engine cannot use as it lies is left
// to the front end, which copies it, or says what is wrong with it.
#pragma once

#include <corro/corro.h>
#include <nanobind/nanobind.h>

#include <array>
#include <cstdint>
#include <utility>

namespace corro::python {

inline constexpr int32_t kMostDims = 64;  ///< As many as numpy and torch allow.

/// Where an array lies, and what it holds.
struct ArrayFacts {
  void* data = nullptr;
  uint64_t count = 0;  ///< Elements.
  uint8_t dtype = 0;   ///< The engine's number.
  int32_t ndim = 0;
  std::array<uint64_t, kMostDims> dims;  ///< `ndim` of them are set.

  [[nodiscard]] bool same_kind_as(const ArrayFacts& other) const;  ///< dtype and shape.
};

/// How the arrays of one library are read. Immutable; needs the GIL.
class Arrays {
 public:
  /// @param type the library's class of arrays
  /// @param empty_like makes an array of the kind of another one
  /// @param dtypes the engine's numbers of the dtypes of torch, whose tensors are read by their
  ///     attributes; None: arrays of exactly `type` are read by the buffer protocol
  Arrays(nanobind::object type, nanobind::object empty_like, nanobind::object dtypes)
      : type_(std::move(type)), empty_like_(std::move(empty_like)), dtypes_(std::move(dtypes)) {}

  /// False, and nothing raised, unless the engine can use the array as it lies: one of the library,
  /// of a dtype that the engine has, contiguous in the memory of this host and, if the engine
  /// `writes` to it, writable.
  bool read(nanobind::handle array, bool writes, ArrayFacts& facts) const;
  [[nodiscard]] nanobind::object empty_like(nanobind::handle array) const {
    return empty_like_(array);
  }

 private:
  nanobind::object type_, empty_like_, dtypes_;
};

/// What the engine is to do with two arrays, as they say what they are.
struct ArrayOp {
  /// Makes the target if it is None.
  ArrayOp(const Arrays& arrays, const nanobind::object& source, nanobind::object& target);

  void fill(uint8_t kind, const nanobind::int_& reduce_op, int root, double prescale,
            double postscale);

  ArrayFacts in;
  corro_op op{};
  bool usable = false;  ///< As Arrays::read().
};

}  // namespace corro::python
