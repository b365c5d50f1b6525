#include "plan/partition/partition_command.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "plan/json.h"
#include "plan/quantity.h"

namespace corro::plan {
namespace {

Status refuse(std::string_view what) {
  return {Code::kInvalidArgument, fmt::format("{} (usage: {})", what, kPartitionUsage)};
}

/// A value that reads like a number of JSON: no locale, no spaces, no "nan".
std::optional<Json> to_number(const std::string& text) {
  const auto value = parse_json(text, "");
  if (!value.ok() || !value->is_number()) return {};
  return *value;
}

template <typename T>
Status set_integer(std::optional<T>& option, std::string_view name, const std::string& text) {
  const auto value = to_number(text);
  if (!value || !value->is_number_unsigned() ||
      value->template get<uint64_t>() > std::numeric_limits<T>::max()) {
    return refuse(fmt::format("{}: must be a whole number", name));
  }
  option = value->template get<T>();
  return {};
}

Status set_amount(std::optional<double>& option, std::string_view name, const std::string& text,
                  Unit unit) {
  option = parse_quantity(text, unit);
  if (option) return {};
  return refuse(fmt::format("{}: must be an amount of {} such as \"{}\"", name, name_of(unit),
                            example_of(unit)));
}

Status set(PartitionOptions& options, std::string_view name, const std::string& text) {
  if (name == "--devices") return set_integer(options.devices, name, text);
  if (name == "--micro-batches") return set_integer(options.micro_batches, name, text);
  if (name == "--memory") return set_amount(options.memory_bytes, name, text, Unit::kBytes);
  return set_amount(options.bandwidth, name, text, Unit::kBytesPerSecond);
}

bool is_option(std::string_view name) {
  return name == "--devices" || name == "--micro-batches" || name == "--memory" ||
         name == "--bandwidth";
}

}  // namespace

Result<PartitionRequest> parse_partition_arguments(std::span<const std::string> arguments) {
  PartitionRequest request;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    if (is_option(name)) {
      if (equals == std::string::npos && ++i == arguments.size()) {
        return refuse(fmt::format("{}: needs a value", name));
      }
      CORRO_TRY(set(request.options, name,
                    equals == std::string::npos ? arguments[i] : argument.substr(equals + 1)));
    } else if (argument.starts_with('-') || !request.file.empty() || argument.empty()) {
      return refuse(fmt::format("\"{}\" is no argument here", argument));
    } else {
      request.file = argument;
    }
  }
  if (request.file.empty()) return refuse("a file is missing");
  return request;
}

}  // namespace corro::plan
