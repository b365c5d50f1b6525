// For tests: checkpoints with known contents, written by any number of ranks of one process.
#pragma once

#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "checkpoint/image.h"
#include "checkpoint/layout.h"
#include "checkpoint/reader.h"
#include "checkpoint/share.h"
#include "checkpoint/writer.h"

namespace corro::checkpoint {

/// Tensors of all kinds: without dims, empty, of odd sizes and names, and one of several blocks.
inline const std::vector<Owned>& sample_tensors() {
  static const std::vector<Owned> kTensors = [] {
    std::vector<Owned> tensors = {{"weight", DType::kF32, {400, 1000}, {}},
                                  {"weight[0:1,0:1000]", DType::kBF16, {3}, {}},
                                  {"__metadata__", DType::kBool, {5}, {}},
                                  {"step", DType::kI64, {}, {}},
                                  {"none", DType::kF16, {0, 3}, {}},
                                  {"a \"b\"\n/\\ \xC3\xA4", DType::kU8, {2, 3}, {}}};
    for (Owned& tensor : tensors) tensor.box = whole_of(tensor.shape);
    return tensors;
  }();
  return kTensors;
}

/// The bytes of a sample tensor at a step.
inline std::vector<std::byte> sample_bytes(size_t tensor, uint64_t step) {
  const Owned& one = sample_tensors()[tensor];
  std::vector<std::byte> bytes(elements_of(one.shape) * size_of(one.dtype));
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * 131 + (i >> 8U) + tensor * 7 + step * 29);
  return bytes;
}

/// Fills the rank's image and writes its part.
inline Status write_sample_part(Disk& disk, const std::string& root, uint64_t step, uint32_t rank,
                                uint32_t world, uint64_t attempt = 1) {
  std::vector<Tensor> tensors;
  for (const Owned& one : sample_tensors()) tensors.push_back({one.dtype, one.shape});
  std::vector<Owned> boxes;
  std::vector<size_t> of_tensor;
  for (const Shared& part : share_of(rank, world, tensors)) {
    boxes.push_back(sample_tensors()[part.tensor]);
    boxes.back().box = part.box;
    of_tensor.push_back(part.tensor);
  }
  CORRO_ASSIGN(const Layout layout, make_layout(boxes));
  Image image;
  CORRO_TRY(image.resize(layout.bytes));
  std::byte* const memory = image.bytes().data();
  std::memcpy(memory, layout.header.data(), layout.header.size());
  for (size_t i = 0; i < boxes.size(); ++i) {
    const std::vector<std::byte> whole = sample_bytes(of_tensor[i], step);
    for (const Stretch& one :
         stretches_between(whole_of(boxes[i].shape), boxes[i].box, size_of(boxes[i].dtype)))
      std::memcpy(memory + layout.offsets[i] + one.to, whole.data() + one.from, one.bytes);
  }
  return write_part(disk, root + "/" + partial_name(step, attempt), rank,
                    part_of(step, rank, world, R"({"at":1.5})", boxes, layout), image.bytes());
}

/// What a whole job does for one checkpoint.
inline Status write_sample(Disk& disk, const std::string& root, uint64_t step, uint32_t world,
                           size_t keep = 2) {
  for (uint32_t rank = 0; rank < world; ++rank)
    CORRO_TRY(write_sample_part(disk, root, step, rank, world));
  CORRO_TRY(commit(disk, root, step, 1, {.ranks = world}));
  return remove_old(disk, root, step, keep);
}

/// Reads everything, and says whether it is what was written at that step.
inline Status check_sample(const std::string& root, uint64_t step) {
  CORRO_ASSIGN(const Opened opened, Opened::open(root, step));
  CORRO_TRY(opened.verify([](uint64_t) {}));
  for (size_t i = 0; i < opened.manifest().tensors.size(); ++i) {
    const TensorEntry& tensor = opened.manifest().tensors[i];
    const auto known = std::ranges::find(sample_tensors(), tensor.name, &Owned::name);
    CORRO_CHECK(known != sample_tensors().end(), tensor.name);
    const auto bytes = sample_bytes(static_cast<size_t>(known - sample_tensors().begin()), step);
    std::vector<std::byte> read(bytes.size());
    CORRO_TRY(opened.read({{i, whole_of(tensor.shape), read.data()}}));
    CORRO_CHECK(read == bytes, tensor.name);
  }
  CORRO_CHECK(opened.manifest().tensors.size() == sample_tensors().size());
  return {};
}

/// The newest step whose checkpoint is valid.
inline std::optional<uint64_t> newest_valid(const std::string& root) {
  const std::vector<uint64_t> steps = steps_in(root).value();
  for (const uint64_t step : steps) {
    if (check_sample(root, step).ok()) return step;
  }
  return std::nullopt;
}

/// A folder of the test's own, empty; in memory, where the thousands of files that faults need are
/// durable at once, or on the disk, as users have it.
inline std::string fresh_folder(const std::string& name, bool on_disk = false) {
  const bool in_memory = !on_disk && std::filesystem::is_directory("/dev/shm");
  const std::string path =
      (in_memory ? "/dev/shm/" : testing::TempDir()) + "corro-checkpoint-" + name;
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

}  // namespace corro::checkpoint
