// corro._native.BucketSet: the part of the C ABI that is about buckets.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "engine_ref.h"

namespace corro::python {

class BucketSet {
 public:
  /// Name, dtype, address, count, bucket.
  using Part = std::tuple<std::string, uint8_t, uintptr_t, uint64_t, uint32_t>;

  /// `buffers` lives as long as the set; so does the group.
  BucketSet(EnginePtr engine, corro_group* group, nb::object group_object,
            const std::vector<Part>& parts, uint8_t reduce_op, uint32_t passes, double prescale,
            double postscale, uintptr_t codec, nb::object buffers);
  BucketSet(const BucketSet&) = delete;
  BucketSet& operator=(const BucketSet&) = delete;
  ~BucketSet();

  void ready(uint32_t part);
  void close(uint64_t generation, uint64_t word);
  /// Blocks until all that may be reduced is; lets Python's handlers of signals run now and then,
  /// which may raise.
  void wait();
  void next();
  void join();
  [[nodiscard]] uint64_t generation() const;
  [[nodiscard]] uint32_t came(uint32_t part) const;
  /// The parts that have not come as often as there are passes.
  [[nodiscard]] std::vector<uint32_t> missing() const;
  [[nodiscard]] bool came_anywhere(uint32_t part) const;

 private:
  [[nodiscard]] corro_bucket_set* get() const {
    static_cast<void>(engine_->get());
    return set_;
  }

  EnginePtr engine_;
  nb::object group_;
  nb::object buffers_;
  corro_bucket_set* set_ = nullptr;
  uint32_t parts_;
  uint32_t passes_;
};

void bind_buckets(nb::module_& module);

}  // namespace corro::python
