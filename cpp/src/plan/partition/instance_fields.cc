#include "plan/partition/instance_fields.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "plan/partition/components.h"

namespace corro::plan {
namespace {

constexpr int64_t kMostId = int64_t{1} << 53U;

/// Null and an error if the field is missing.
const Json* need(const ObjectReader& object, const Place& place, std::string_view field,
                 Reading& reading) {
  const Json* value = object.find(field);
  if (value == nullptr) reading.fail({&place, field, {}}, "is missing");
  return value;
}

}  // namespace

double read_quantity(const Json& value, const Place& at, Reading& reading) {
  const double number = value.is_number() ? value.get<double>() : -1;
  if (std::isfinite(number) && number >= 0 && number <= kMostQuantity) return number;
  reading.fail(at, fmt::format("must be a number from 0 to {}", kMostQuantity));
  return 0;
}

double read_quantity(const ObjectReader& object, const Place& place, std::string_view field,
                     Reading& reading) {
  const Json* value = need(object, place, field, reading);
  return value == nullptr ? 0 : read_quantity(*value, {&place, field, {}}, reading);
}

double read_positive(const ObjectReader& object, const Place& place, std::string_view field,
                     Reading& reading) {
  const double number = read_quantity(object, place, field, reading);
  if (number < kLeastPositive) {
    reading.fail({&place, field, {}},
                 fmt::format("must be a number from {} to {}", kLeastPositive, kMostQuantity));
  }
  return number;
}

bool read_flag(const ObjectReader& object, const Place& place, std::string_view field,
               Reading& reading) {
  const Json* value = need(object, place, field, reading);
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  if (value->is_number_unsigned() && value->get<uint64_t>() <= 1)
    return value->get<uint64_t>() == 1;
  reading.fail({&place, field, {}}, "must be true, false, 0 or 1");
  return false;
}

void check_length(const ObjectReader& object, std::string_view field, size_t most,
                  Reading& reading) {
  const Place place{nullptr, field, {}};
  const Json* list = object.find(field);
  if (list == nullptr) return reading.fail(place, "is missing");
  if (list->is_array() && list->size() > most) {
    reading.fail(place, fmt::format("has {} items; at most {} are read", list->size(), most));
  }
}

void NodeIds::add(ObjectReader& node, const Place& place, Reading& reading) {
  const int64_t id = node.integer("id", {-kMostId, kMostId});
  const auto number = static_cast<uint32_t>(ids_.size());
  ids_.push_back(id);
  if (!places_.emplace(id, number).second && reading.ok()) {
    reading.fail({&place, "id", {}}, fmt::format("node {} comes twice", id));
  }
}

std::optional<uint32_t> NodeIds::find(int64_t id) const {
  const auto found = places_.find(id);
  if (found == places_.end()) return {};
  return found->second;
}

uint32_t NodeIds::read(ObjectReader& edge, const Place& place, std::string_view field,
                       Reading& reading) const {
  const int64_t id = edge.integer(field, {-kMostId, kMostId});
  const auto found = find(id);
  if (!found && reading.ok()) {
    reading.fail({&place, field, {}}, fmt::format("there is no node {}", id));
  }
  return found.value_or(0);
}

void check_no_cycle(const std::vector<std::vector<uint32_t>>& next, const NodeIds& ids,
                    Reading& reading) {
  const Components components = find_components(next);
  std::vector<uint32_t> sizes(components.count, 0);
  for (const uint32_t component : components.of) ++sizes[component];
  for (uint32_t node = 0; node < next.size(); ++node) {
    if (sizes[components.of[node]] == 1 && std::ranges::find(next[node], node) == next[node].end())
      continue;
    return reading.fail({nullptr, "edges", {}},
                        fmt::format("make a cycle through node {}", ids.all()[node]));
  }
}

}  // namespace corro::plan
