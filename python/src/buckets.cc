#include "buckets.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <utility>

namespace corro::python {
namespace {

using namespace nb::literals;

constexpr int64_t kBetweenSignals = 50'000'000;  ///< Nanoseconds between looks at signals.

std::vector<corro_bucket_part> parts_in_c(const std::vector<BucketSet::Part>& parts) {
  std::vector<corro_bucket_part> list;
  list.reserve(parts.size());
  for (const auto& [name, dtype, address, count, bucket] : parts) {
    corro_bucket_part part{};
    part.struct_size = sizeof part;
    part.dtype = dtype;
    part.bucket = bucket;
    part.data = reinterpret_cast<void*>(address);
    part.count = count;
    part.name = name.c_str();
    list.push_back(part);
  }
  return list;
}

}  // namespace

BucketSet::BucketSet(EnginePtr engine, corro_group* group, nb::object group_object,
                     const std::vector<Part>& parts, uint8_t reduce_op, uint32_t passes,
                     double prescale, double postscale, uintptr_t codec, nb::object buffers)
    : engine_(std::move(engine)),
      group_(std::move(group_object)),
      buffers_(std::move(buffers)),
      parts_(static_cast<uint32_t>(parts.size())),
      passes_(passes) {
  static_cast<void>(engine_->get());
  const std::vector<corro_bucket_part> list = parts_in_c(parts);
  corro_bucket_options options{};
  options.struct_size = sizeof options;
  options.reduce_op = reduce_op;
  options.has_scales = 1;
  options.codec = reinterpret_cast<const corro_codec*>(codec);
  options.passes = passes;
  options.prescale = prescale;
  options.postscale = postscale;
  engine_->checked([&](corro_error* error) {
    return corro_bucket_create(group, list.data(), list.size(), &options, &set_, error);
  });
}

BucketSet::~BucketSet() {
  if (engine_->engine != nullptr) corro_bucket_destroy(set_);
}

void BucketSet::ready(uint32_t part) {
  corro_error error;
  if (corro_bucket_ready(get(), part, &error) != CORRO_OK) raise(error);
}

void BucketSet::close(uint64_t generation, uint64_t word) {
  corro_error error;
  if (corro_bucket_close(get(), generation, word, &error) != CORRO_OK) raise(error);
}

void BucketSet::wait() {
  while (true) {
    corro_bucket_set* set = get();
    corro_error error{};
    error.rank = -1;
    const corro_code code = engine_->without_gil(
        [&] { return corro_bucket_wait(set, CORRO_ALL_BUCKETS, kBetweenSignals, &error); });
    if (code == CORRO_OK) return;
    // The end of a slice names no operation, a deadline of the engine's does.
    if (code != CORRO_DEADLINE_EXCEEDED || error.op[0] != '\0') raise(error);
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

void BucketSet::next() {
  corro_error error;
  if (corro_bucket_next(get(), &error) != CORRO_OK) raise(error);
}

void BucketSet::join() {
  corro_error error;
  if (corro_bucket_join(get(), &error) != CORRO_OK) raise(error);
}

uint64_t BucketSet::generation() const { return corro_bucket_generation(get()); }
uint32_t BucketSet::came(uint32_t part) const { return corro_bucket_came(get(), part); }

std::vector<uint32_t> BucketSet::missing() const {
  corro_bucket_set* set = get();
  std::vector<uint32_t> list;
  for (uint32_t part = 0; part < parts_; ++part) {
    if (corro_bucket_came(set, part) < passes_) list.push_back(part);
  }
  return list;
}

bool BucketSet::came_anywhere(uint32_t part) const {
  return corro_bucket_came_anywhere(get(), part) != 0;
}

void bind_buckets(nb::module_& module) {
  nb::class_<BucketSet>(module, "BucketSet")
      .def("ready", &BucketSet::ready, "part"_a)
      .def("close", &BucketSet::close, "generation"_a, "word"_a)
      .def("wait", &BucketSet::wait)
      .def("next", &BucketSet::next)
      .def("join", &BucketSet::join)
      .def_prop_ro("generation", &BucketSet::generation)
      .def("came", &BucketSet::came, "part"_a)
      .def("missing", &BucketSet::missing)
      .def("came_anywhere", &BucketSet::came_anywhere, "part"_a);
}

}  // namespace corro::python
