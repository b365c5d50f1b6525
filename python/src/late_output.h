// LateOutput: where an operation's result goes if its size is known only when the ranks have told
// each other how many rows they have (corro_op.allocate).
//
// The engine calls allocate() on one of its threads, without the GIL: this is plain memory. Python
// sees it once the operation is over, as a memoryview that keeps this object alive.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace corro::python {

namespace nb = nanobind;

/// Used by the engine until the operation is over, and by Python after that.
class LateOutput {
 public:
  using Memory = nb::ndarray<nb::memview, uint8_t, nb::ndim<1>>;

  /// `row`: elements of a row, `size`: bytes of one.
  LateOutput(uint64_t row, size_t size, size_t ranks) : row_(row), size_(size), rows_(ranks) {}
  LateOutput(const LateOutput&) = delete;
  LateOutput& operator=(const LateOutput&) = delete;

  static void* allocate(void* self, const uint64_t* rows) {
    return static_cast<LateOutput*>(self)->make(rows);
  }

  [[nodiscard]] uint64_t row() const { return row_; }
  [[nodiscard]] size_t ranks() const { return rows_.size(); }
  /// How many rows have come from each rank.
  [[nodiscard]] const std::vector<uint64_t>& rows() const { return rows_; }

  /// The rows, writable. Needs the GIL.
  [[nodiscard]] Memory memory() const { return {memory_.get(), {bytes_}, nb::find(this)}; }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  static constexpr size_t kAlignment = 64;

  void* make(const uint64_t* rows) {
    std::copy_n(rows, rows_.size(), rows_.begin());
    make_memory(std::accumulate(rows_.begin(), rows_.end(), uint64_t{0}) * row_ * size_);
    return memory_.get();
  }

  void make_memory(size_t bytes) {
    bytes_ = bytes;
    const size_t whole = (bytes / kAlignment + 1) * kAlignment;
    memory_.reset(std::aligned_alloc(kAlignment, whole));
  }

  uint64_t row_;
  size_t size_;
  size_t bytes_ = 0;
  std::vector<uint64_t> rows_;
  std::unique_ptr<void, Free> memory_;
};

}  // namespace corro::python
