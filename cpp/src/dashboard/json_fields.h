// Fields of JSON objects that others may have written. Each reader is false where the field is there
// and is something else; one that is missing leaves the value as it is; null is what there is none of.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace corro::dashboard {

using Json = nlohmann::ordered_json;

inline const Json* field_of(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found == json.end() ? nullptr : &*found;
}

inline bool read_text(const Json& json, const char* name, std::string& value) {
  const Json* field = field_of(json, name);
  if (field == nullptr) return true;
  if (!field->is_null() && !field->is_string()) return false;
  value = field->is_null() ? "" : field->get<std::string>();
  return true;
}

template <typename Number>
bool read_number(const Json& json, const char* name, Number& value, Number none) {
  const Json* field = field_of(json, name);
  if (field == nullptr) return true;
  value = none;
  if (field->is_null()) return true;
  if (!field->is_number_unsigned()) return false;
  const auto number = field->get<uint64_t>();
  if (number > static_cast<uint64_t>(std::numeric_limits<Number>::max())) return false;
  value = static_cast<Number>(number);
  return true;
}

inline bool read_step(const Json& json, const char* name, std::optional<uint64_t>& step) {
  const Json* field = field_of(json, name);
  if (field == nullptr) return true;
  if (!field->is_null() && !field->is_number_unsigned()) return false;
  step = field->is_null() ? std::nullopt : std::optional(field->get<uint64_t>());
  return true;
}

inline bool read_real(const Json& json, const char* name, std::optional<double>& value) {
  const Json* field = field_of(json, name);
  if (field == nullptr) return true;
  if (!field->is_null() && !field->is_number()) return false;
  value = field->is_null() ? std::nullopt : std::optional(field->get<double>());
  return true;
}

}  // namespace corro::dashboard
