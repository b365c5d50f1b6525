#include "checkpoint/layout.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace corro::checkpoint {
namespace {

/// As safetensors spells it: "BF16".
std::string safetensors_name(DType dtype) {
  std::string name(name_of(dtype));
  std::ranges::transform(name, name.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return name;
}

std::string name_in_file(const Owned& owned) {
  if (owned.box == whole_of(owned.shape)) return owned.name;
  std::string ranges;
  for (size_t dim = 0; dim < owned.shape.size(); ++dim) {
    const int64_t from = owned.box.offsets[dim];
    ranges += fmt::format("{}{}:{}", dim == 0 ? "" : ",", from, from + owned.box.shape[dim]);
  }
  return fmt::format("{}[{}]", owned.name, ranges);
}

uint64_t bytes_of(const Owned& owned) {
  return elements_of(owned.box.shape) * size_of(owned.dtype);
}

/// The boxes in the order in which they lie.
std::vector<size_t> order_of(const std::vector<Owned>& boxes) {
  std::vector<size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(),
                           [&](size_t i) { return size_of(boxes[i].dtype); });
  return order;
}

/// Eight bytes of length, the text, and spaces to the end of the page.
std::string padded(std::string text) {
  constexpr size_t kLength = sizeof(uint64_t);
  const size_t used = kLength + text.size();
  text.append((kPageBytes - used % kPageBytes) % kPageBytes, ' ');
  std::string header;
  for (size_t i = 0; i < kLength; ++i) header += static_cast<char>(text.size() >> (8 * i) & 0xFFU);
  return header + text;
}

}  // namespace

Result<Layout> make_layout(const std::vector<Owned>& boxes) {
  Layout layout;
  layout.offsets.resize(boxes.size());
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  uint64_t end = 0;
  for (const size_t i : order_of(boxes)) {
    std::string name = name_in_file(boxes[i]);
    while (header.contains(name)) name += '\'';  // A tensor may be named as another's part is.
    layout.offsets[i] = end;
    end += bytes_of(boxes[i]);
    header[name] = {{"dtype", safetensors_name(boxes[i].dtype)},
                    {"shape", boxes[i].box.shape},
                    {"data_offsets", {layout.offsets[i], end}}};
  }
  try {
    layout.header = padded(header.dump());
  } catch (const nlohmann::json::exception&) {
    return Status(Code::kInvalidArgument, "a tensor's name is not UTF-8");
  }
  for (uint64_t& offset : layout.offsets) offset += layout.header.size();
  layout.bytes = layout.header.size() + end;
  return layout;
}

Manifest part_of(uint64_t step, uint32_t rank, uint32_t world, std::string values,
                 const std::vector<Owned>& boxes, const Layout& layout) {
  Manifest part{.step = step, .world = world, .values = std::move(values)};
  part.files.push_back({fmt::format("rank-{}.safetensors", rank), layout.bytes, {}});
  std::map<std::string_view, size_t> places;
  for (size_t i = 0; i < boxes.size(); ++i) {
    const Owned& owned = boxes[i];
    const auto [at, is_new] = places.emplace(owned.name, part.tensors.size());
    if (is_new) part.tensors.push_back({owned.name, owned.dtype, owned.shape, {}});
    part.tensors[at->second].pieces.push_back({0, layout.offsets[i], owned.box});
  }
  return part;
}

}  // namespace corro::checkpoint
