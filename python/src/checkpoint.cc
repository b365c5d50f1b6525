// corro._checkpoint: checkpoints for Python, without libcorro.so, an engine or torch. Tensors are
// addresses, dtypes are _native's numbers. The GIL is released around everything that waits for a
// disk.
//
//   part = _checkpoint.Part(step, rank, world, "{}", [("w", F32, [4, 8], [0, 0], [4, 8])])
//   image.resize(part.bytes)     # then fill image.memory() at part.offsets
//   part.write("folder/step-7.partial-1", image)
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "checkpoint/image.h"
#include "checkpoint/layout.h"
#include "checkpoint/reader.h"
#include "checkpoint/share.h"
#include "checkpoint/writer.h"
#include "raised.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

namespace checkpoint = corro::checkpoint;
using checkpoint::Box;
using checkpoint::Shape;
using corro::DType;
using corro::Status;
using corro::python::raise;
using corro::python::value_or_raise;

using Boxes = std::vector<std::tuple<std::string, int, Shape, Shape, Shape>>;

template <typename Call>
void run_unlocked(Call call) {
  const Status status = [&] {
    const nb::gil_scoped_release release;
    return call();
  }();
  if (!status.ok()) raise(status);
}

DType dtype_of(int number) {
  if (number < 0 || number >= corro::kDTypeCount)
    raise(Status(corro::Code::kInvalidArgument, "dtype is none of corro's"));
  return static_cast<DType>(number);
}

std::vector<std::tuple<size_t, Shape, Shape>> share(
    uint32_t rank, uint32_t world, const std::vector<std::pair<int, Shape>>& tensors) {
  std::vector<checkpoint::Tensor> all;
  for (const auto& [dtype, shape] : tensors) all.push_back({dtype_of(dtype), shape});
  std::vector<std::tuple<size_t, Shape, Shape>> mine;
  for (auto& [tensor, box] : checkpoint::share_of(rank, world, all))
    mine.emplace_back(tensor, box.offsets, box.shape);
  return mine;
}

class Image {
 public:
  void resize(uint64_t bytes) {
    if (const Status status = image_.resize(bytes); !status.ok()) raise(status);
  }
  /// Valid until resize(), and as long as this object.
  nb::object memory() const {
    const auto bytes = image_.bytes();
    return nb::steal(PyMemoryView_FromMemory(reinterpret_cast<char*>(bytes.data()),
                                             static_cast<Py_ssize_t>(bytes.size()), PyBUF_WRITE));
  }
  [[nodiscard]] std::span<std::byte> bytes() const { return image_.bytes(); }

 private:
  checkpoint::Image image_;
};

/// What one rank writes.
class Part {
 public:
  Part(uint64_t step, uint32_t rank, uint32_t world, std::string values, const Boxes& boxes)
      : rank_(rank) {
    std::vector<checkpoint::Owned> owned;
    for (const auto& [name, dtype, shape, offsets, length] : boxes)
      owned.push_back({name, dtype_of(dtype), shape, {offsets, length}});
    layout_ = value_or_raise(checkpoint::make_layout(owned));
    part_ = checkpoint::part_of(step, rank, world, std::move(values), owned, layout_);
    // Values that are no JSON are said before a thread writes.
    (void)value_or_raise(checkpoint::manifest_to_text(part_));
  }
  [[nodiscard]] uint64_t bytes() const { return layout_.bytes; }
  [[nodiscard]] std::vector<uint64_t> offsets() const { return layout_.offsets; }
  void write(const std::string& folder, const Image& image) const {
    const std::span<std::byte> bytes = image.bytes();
    if (bytes.size() != layout_.bytes)
      raise(Status(corro::Code::kInvalidArgument, "the image has another size than the part"));
    std::memcpy(bytes.data(), layout_.header.data(), layout_.header.size());
    run_unlocked([&] {
      checkpoint::RealDisk disk;
      return checkpoint::write_part(disk, folder, rank_, part_, bytes);
    });
  }

 private:
  uint32_t rank_;
  checkpoint::Layout layout_;
  checkpoint::Manifest part_;
};

void commit(const std::string& root, uint64_t step, uint64_t attempt, uint32_t world,
            const std::vector<uint32_t>& table_parts, size_t keep) {
  run_unlocked([&] {
    checkpoint::RealDisk disk;
    const Status status = checkpoint::commit(disk, root, step, attempt, {world, table_parts});
    return status.ok() ? checkpoint::remove_old(disk, root, step, keep) : status;
  });
}

void remove_partial(const std::string& root) {
  run_unlocked([&] {
    checkpoint::RealDisk disk;
    return checkpoint::remove_partial(disk, root);
  });
}

class Lock {
 public:
  explicit Lock(const std::string& root)
      : lock_(value_or_raise(checkpoint::FolderLock::take(root))) {}
  void close() { lock_.reset(); }

 private:
  std::optional<checkpoint::FolderLock> lock_;
};

class Opened {
 public:
  Opened(const std::string& root, uint64_t step)
      : opened_(value_or_raise(checkpoint::Opened::open(root, step))) {}
  [[nodiscard]] uint32_t world() const { return opened_.manifest().world; }
  [[nodiscard]] std::string values() const { return opened_.manifest().values; }
  [[nodiscard]] std::vector<std::tuple<std::string, int, Shape>> tensors() const {
    std::vector<std::tuple<std::string, int, Shape>> all;
    for (const checkpoint::TensorEntry& tensor : opened_.manifest().tensors)
      all.emplace_back(tensor.name, static_cast<int>(tensor.dtype), tensor.shape);
    return all;
  }
  [[nodiscard]] std::vector<std::string> tables() const {
    std::vector<std::string> names;
    for (const checkpoint::TableEntry& table : opened_.manifest().tables)
      names.push_back(table.name);
    return names;
  }
  /// Index of the tensor, offsets and shape of the box, and the address of its memory.
  void read(const std::vector<std::tuple<size_t, Shape, Shape, uintptr_t>>& boxes) const {
    std::vector<checkpoint::Wanted> wanted;
    for (const auto& [tensor, offsets, shape, address] : boxes) {
      const auto& tensors = opened_.manifest().tensors;
      if (tensor >= tensors.size() || offsets.size() != tensors[tensor].shape.size() ||
          shape.size() != offsets.size())
        raise(Status(corro::Code::kInvalidArgument, "the checkpoint has no such box"));
      wanted.push_back({tensor, {offsets, shape}, reinterpret_cast<std::byte*>(address)});
    }
    run_unlocked([&] { return opened_.read(wanted); });
  }

 private:
  checkpoint::Opened opened_;
};

}  // namespace

NB_MODULE(_checkpoint, module) {
  module.doc() = "The door to checkpoints on disk; use corro.checkpoint.";
  module.def("share", &share, "rank"_a, "world"_a, "tensors"_a);
  module.def("commit", &commit, "root"_a, "step"_a, "attempt"_a, "world"_a, "table_parts"_a,
             "keep"_a);
  module.def("remove_partial", &remove_partial, "root"_a);
  module.def("partial_name", &checkpoint::partial_name, "step"_a, "attempt"_a);
  module.def(
      "steps", [](const std::string& root) { return value_or_raise(checkpoint::steps_in(root)); },
      "root"_a);
  nb::class_<Image>(module, "Image")
      .def(nb::init<>())
      .def("resize", &Image::resize, "bytes"_a)
      .def("memory", &Image::memory);
  nb::class_<Part>(module, "Part")
      .def(nb::init<uint64_t, uint32_t, uint32_t, std::string, const Boxes&>(), "step"_a, "rank"_a,
           "world"_a, "values"_a, "boxes"_a)
      .def_prop_ro("bytes", &Part::bytes)
      .def_prop_ro("offsets", &Part::offsets)
      .def("write", &Part::write, "folder"_a, "image"_a);
  nb::class_<Lock>(module, "Lock")
      .def(nb::init<const std::string&>(), "root"_a)
      .def("close", &Lock::close);
  nb::class_<Opened>(module, "Opened")
      .def(nb::init<const std::string&, uint64_t>(), "root"_a, "step"_a)
      .def_prop_ro("world", &Opened::world)
      .def_prop_ro("values", &Opened::values)
      .def_prop_ro("tensors", &Opened::tensors)
      .def_prop_ro("tables", &Opened::tables)
      .def("read", &Opened::read, "boxes"_a);
}
