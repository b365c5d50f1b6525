#include "kube/job/field_reader.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace corro::kube {
namespace {

const Json& no_fields() {
  static const Json kNone = Json::object();
  return kNone;
}

}  // namespace

FieldReader::FieldReader(const Json& object, std::string path, Problems& problems)
    : object_(&object), path_(std::move(path)), problems_(problems) {
  if (object.is_object()) return;
  object_ = &no_fields();
  if (problems.size() < kMostProblems) problems.push_back({path_, "must be an object"});
}

const Json* FieldReader::find(std::string_view field) const {
  const auto found = object_->find(field);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

const Json* FieldReader::require(std::string_view field) {
  const Json* value = find(field);
  if (value == nullptr) fail(field, "is missing");
  return value;
}

std::optional<int64_t> FieldReader::integer(std::string_view field, Range range) {
  const Json* value = find(field);
  if (value == nullptr) return {};
  const bool fits = value->is_number_unsigned()
                        ? value->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)
                        : value->is_number_integer();
  if (fits && value->get<int64_t>() >= range.least && value->get<int64_t>() <= range.most)
    return value->get<int64_t>();
  fail(field, fmt::format("must be an integer from {} to {}", range.least, range.most));
  return {};
}

bool FieldReader::boolean(std::string_view field, bool fallback) {
  const Json* value = find(field);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  fail(field, "must be true or false");
  return fallback;
}

std::string FieldReader::text(std::string_view field, std::string_view fallback, size_t most) {
  const Json* value = find(field);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) {
    fail(field, "must be text");
  } else if (value->get_ref<const std::string&>().size() > most) {
    fail(field, fmt::format("must be at most {} bytes", most));
  } else {
    return value->get<std::string>();
  }
  return std::string(fallback);
}

size_t FieldReader::choice(std::string_view field, std::initializer_list<std::string_view> names,
                           size_t fallback) {
  const Json* value = find(field);
  if (value == nullptr) return fallback;
  size_t place = 0;
  for (const std::string_view name : names) {
    if (value->is_string() && value->get_ref<const std::string&>() == name) return place;
    ++place;
  }
  fail(field, fmt::format("must be one of {}", fmt::join(names, ", ")));
  return fallback;
}

FieldReader FieldReader::object(std::string_view field) {
  const Json* value = find(field);
  return {value == nullptr ? no_fields() : *value, path_of(field), problems_};
}

std::string FieldReader::path_of(std::string_view field) const {
  if (path_.empty()) return std::string(field);
  return field.empty() ? path_ : fmt::format("{}.{}", path_, field);
}

void FieldReader::fail(std::string_view field, std::string what) {
  if (problems_.size() < kMostProblems) problems_.push_back({path_of(field), std::move(what)});
}

}  // namespace corro::kube
