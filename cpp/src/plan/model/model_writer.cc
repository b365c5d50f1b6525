#include "plan/model/model_writer.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "plan/model/model_file.h"

namespace corro::plan {
namespace {

using Written = nlohmann::ordered_json;

template <typename T>
void put(Written& object, const char* field, const T& value, const T& by_default) {
  if (value != by_default) object[field] = value;
}

Status refuse(std::string_view place, std::string_view what) {
  return {Code::kInvalidArgument, fmt::format("model: {}: {}", place, what)};
}

Result<Written> operator_to_json(const LayerType& type, size_t number, const std::string& place) {
  const Operator& op = type.operators[number];
  if (!is_name(op.name)) return refuse(place + ".name", kNameRule);
  const Operator usual;
  Written object{{"name", op.name}, {"kind", name_of(op.kind)}};
  for (const uint32_t input : op.inputs) {
    if (input == Operator::kLayerInput) {
      object["inputs"].push_back("input");
    } else if (input < number) {
      object["inputs"].push_back(type.operators[input].name);
    } else {
      return refuse(place + ".inputs", "must be operators before this one");
    }
  }
  put(object, "flops", op.flops, usual.flops);
  put(object, "traffic", op.traffic, usual.traffic);
  put(object, "output", op.output, usual.output);
  put(object, "saved", op.saved, usual.saved);
  put(object, "parameters", op.parameters, usual.parameters);
  put(object, "most_ways", op.most_ways, usual.most_ways);
  return object;
}

/// A type's own fields, then a line for each operator.
Result<std::string> type_to_text(const LayerType& type, const std::string& place) {
  if (!is_name(type.name)) return refuse(place + ".name", kNameRule);
  const LayerType usual;
  Written object{{"name", type.name}};
  put(object, "experts", type.experts, usual.experts);
  put(object, "experts_moved", type.experts_moved, usual.experts_moved);
  put(object, "keys_and_values", type.keys_and_values, usual.keys_and_values);
  std::string text = object.dump();
  text.back() = ',';
  text += " \"operators\": [";
  const char* comma = "\n      ";
  for (size_t i = 0; i < type.operators.size(); ++i) {
    CORRO_ASSIGN(const Written op,
                 operator_to_json(type, i, fmt::format("{}.operators[{}]", place, i)));
    text += std::exchange(comma, ",\n      ") + op.dump();
  }
  return text + "]}";
}

Result<std::string> run_to_text(const Model& model, size_t number) {
  const LayerRun& run = model.layers[number];
  const std::string place = fmt::format("layers[{}]", number);
  if (run.type >= model.types.size()) return refuse(place + ".type", "is none");
  if (!run.name.empty() && !is_name(run.name)) return refuse(place + ".name", kNameRule);
  const LayerRun usual;
  Written object{{"type", model.types[run.type].name}};
  put(object, "count", run.count, usual.count);
  put(object, "name", run.name, usual.name);
  return object.dump();
}

}  // namespace

Result<std::string> write_model(const Model& model) {
  if (!is_name(model.name)) return refuse("name", kNameRule);
  const Model usual;
  Written top{{"corro_model", kModelVersion}, {"name", model.name}};
  put(top, "dtype", name_of(model.dtype), name_of(usual.dtype));
  put(top, "sequence", model.sequence, usual.sequence);
  put(top, "tied_parameters", model.tied_parameters, usual.tied_parameters);
  std::string text = "{\n";
  for (const auto& [field, value] : top.items()) {
    text += fmt::format("  \"{}\": {},\n", field, value.dump());
  }
  text += "  \"types\": [";
  const char* comma = "\n    ";
  for (size_t i = 0; i < model.types.size(); ++i) {
    CORRO_ASSIGN(const std::string type, type_to_text(model.types[i], fmt::format("types[{}]", i)));
    text += std::exchange(comma, ",\n    ") + type;
  }
  text += "\n  ],\n  \"layers\": [";
  comma = "\n    ";
  for (size_t i = 0; i < model.layers.size(); ++i) {
    CORRO_ASSIGN(const std::string run, run_to_text(model, i));
    text += std::exchange(comma, ",\n    ") + run;
  }
  text += "\n  ]\n}\n";
  CORRO_TRY(read_model(text, "model").status());
  return text;
}

}  // namespace corro::plan
