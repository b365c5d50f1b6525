// What both instance formats are read with, on top of plan/json.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "plan/json.h"
#include "plan/partition/instance.h"

namespace corro::plan {

/// A number from 0 to kMostQuantity.
[[nodiscard]] double read_quantity(const ObjectReader& object, const Place& place,
                                   std::string_view field, Reading& reading);
[[nodiscard]] double read_quantity(const Json& value, const Place& at, Reading& reading);

/// A number from kLeastPositive to kMostQuantity.
[[nodiscard]] double read_positive(const ObjectReader& object, const Place& place,
                                   std::string_view field, Reading& reading);

/// true, false, 0 or 1.
[[nodiscard]] bool read_flag(const ObjectReader& object, const Place& place, std::string_view field,
                             Reading& reading);

/// Fails if a list of the document is longer than `most`.
void check_length(const ObjectReader& object, std::string_view field, size_t most,
                  Reading& reading);

/// The numbers that a file gives its nodes.
class NodeIds {
 public:
  /// Reads field "id" of the next node.
  void add(ObjectReader& node, const Place& place, Reading& reading);
  /// The place in the file's order of the node that a field of an edge names.
  [[nodiscard]] uint32_t read(ObjectReader& edge, const Place& place, std::string_view field,
                              Reading& reading) const;
  [[nodiscard]] std::optional<uint32_t> find(int64_t id) const;
  [[nodiscard]] const std::vector<int64_t>& all() const { return ids_; }

 private:
  std::vector<int64_t> ids_;
  std::unordered_map<int64_t, uint32_t> places_;
};

/// Fails at `edges` if the edges make a cycle.
void check_no_cycle(const std::vector<std::vector<uint32_t>>& next, const NodeIds& ids,
                    Reading& reading);

/// The readers of the two formats; `document` is an object.
[[nodiscard]] Result<MaxLoadInstance> read_max_load(const Json& document, std::string_view name);
[[nodiscard]] Result<PiperInstance> read_piper(const Json& document, std::string_view name);

}  // namespace corro::plan
