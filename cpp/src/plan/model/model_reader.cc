#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "plan/model/config.h"
#include "plan/model/model_file.h"
#include "plan/yaml.h"

namespace corro::plan {
namespace {

constexpr RealRange kAmount{0, 1e30};
constexpr int64_t kMostParameters = 1'000'000'000'000'000;
constexpr int64_t kMostWays = 0xffffffff;
constexpr std::string_view kInputName = "input";

/// Reads the lists in the order in which they refer to each other.
class ModelReader {
 public:
  ModelReader(std::string_view name, std::string_view text) : reading_(name, text) {}

  Result<Model> read(const Json& document);

 private:
  using Names = std::map<std::string, uint32_t>;

  std::string read_name(ObjectReader& object, const Place& place, const Names& taken);
  void read_type(const Json& item, const Place& place);
  void read_operator(const Json& item, const Place& place, LayerType& type, Names& names);
  void read_run(const Json& item, const Place& place);

  Reading reading_;
  Names types_;
  Model model_;
};

Result<Model> ModelReader::read(const Json& document) {
  check_version(document, "corro_model", kModelVersion, reading_);
  ObjectReader top(
      document, {}, reading_,
      {"corro_model", "name", "dtype", "sequence", "tied_parameters", "types", "layers"});
  model_.name = read_name(top, {}, {});
  model_.dtype = top.choice<DType>("dtype", kDTypeCount, DType::kBF16);
  model_.sequence = static_cast<uint32_t>(top.integer("sequence", {0, kMostWays}, 0));
  model_.tied_parameters =
      static_cast<uint64_t>(top.integer("tied_parameters", {0, kMostParameters}, 0));
  top.list("types", [this](const Json& item, const Place& place) { read_type(item, place); });
  top.list("layers", [this](const Json& item, const Place& place) { read_run(item, place); });
  if (model_.layers.empty()) reading_.fail({nullptr, "layers", {}}, "must be at least one");
  CORRO_TRY(reading_.status());
  if (const Status status = check_totals(model_); !status.ok()) reading_.fail({}, status.message());
  CORRO_TRY(reading_.status());
  return std::move(model_);
}

std::string ModelReader::read_name(ObjectReader& object, const Place& place, const Names& taken) {
  std::string name = object.text("name");
  const Place at{&place, "name", {}};
  if (!reading_.ok()) return name;
  if (!is_name(name)) reading_.fail(at, kNameRule);
  if (taken.contains(name)) reading_.fail(at, fmt::format("\"{}\" is another's name", name));
  return name;
}

void ModelReader::read_type(const Json& item, const Place& place) {
  ObjectReader object(item, place, reading_,
                      {"name", "experts", "experts_moved", "keys_and_values", "operators"});
  LayerType type;
  type.name = read_name(object, place, types_);
  types_.emplace(type.name, static_cast<uint32_t>(model_.types.size()));
  type.experts = static_cast<uint32_t>(object.integer("experts", {0, kMostWays}, 0));
  type.experts_moved = object.real("experts_moved", kAmount, 0);
  type.keys_and_values = object.real("keys_and_values", kAmount, 0);
  Names names{{std::string(kInputName), Operator::kLayerInput}};
  object.list("operators",
              [&](const Json& op, const Place& at) { read_operator(op, at, type, names); });
  const Place operators{&place, "operators", {}};
  if (type.operators.empty() || type.operators.size() > kMostOperators) {
    reading_.fail(operators, fmt::format("must be 1 to {}", kMostOperators));
  }
  for (size_t i = 0; i < type.operators.size(); ++i) {
    if (type.experts != 0 || type.operators[i].kind != OperatorKind::kExperts) continue;
    reading_.fail({&operators, {}, i}, "is of kind experts, but the layer has none");
  }
  model_.types.push_back(std::move(type));
}

void ModelReader::read_operator(const Json& item, const Place& place, LayerType& type,
                                Names& names) {
  ObjectReader object(
      item, place, reading_,
      {"name", "kind", "inputs", "flops", "traffic", "output", "saved", "parameters", "most_ways"});
  Operator op;
  op.name = read_name(object, place, names);
  op.kind = object.choice<OperatorKind>("kind", kOperatorKindCount);
  object.list("inputs", [&](const Json& input, const Place& at) {
    if (!input.is_string()) return reading_.fail(at, "must be an operator's name");
    const auto found = names.find(input.get_ref<const std::string&>());
    if (found == names.end()) {
      return reading_.fail(at, "must be \"input\" or an operator before this one");
    }
    op.inputs.push_back(found->second);
  });
  op.flops = object.real("flops", kAmount, 0);
  op.traffic = object.real("traffic", kAmount, 0);
  op.output = object.real("output", kAmount, 0);
  op.saved = object.real("saved", kAmount, 0);
  op.parameters = static_cast<uint64_t>(object.integer("parameters", {0, kMostParameters}, 0));
  op.most_ways = static_cast<uint32_t>(object.integer("most_ways", {1, kMostWays}, 1));
  names.emplace(op.name, static_cast<uint32_t>(type.operators.size()));
  type.operators.push_back(std::move(op));
}

void ModelReader::read_run(const Json& item, const Place& place) {
  ObjectReader object(item, place, reading_, {"type", "count", "name"});
  LayerRun run;
  const std::string type = object.text("type");
  run.count = static_cast<uint32_t>(object.integer("count", {1, kMostLayers}, 1));
  run.name = object.text("name", "");
  if (!reading_.ok()) return;
  if (!run.name.empty() && !is_name(run.name)) reading_.fail({&place, "name", {}}, kNameRule);
  const auto found = types_.find(type);
  if (found == types_.end())
    return reading_.fail({&place, "type", {}}, "must be the name of a type");
  run.type = found->second;
  model_.layers.push_back(std::move(run));
}

/// Parameters of one layer, as a real number: a sum of integers could wrap.
double parameters_of(const LayerType& type) {
  double sum = 0;
  for (const Operator& op : type.operators) sum += static_cast<double>(op.parameters);
  return sum;
}

}  // namespace

Status check_totals(const Model& model) {
  const auto refuse = [](std::string_view what) {
    return Status(Code::kInvalidArgument, std::string(what));
  };
  constexpr double kMost = 1e18;
  uint64_t layers = 0;
  double parameters = 0;
  for (const LayerRun& run : model.layers) {
    layers += run.count;
    parameters += run.count * parameters_of(model.types[run.type]);
  }
  if (layers > kMostLayers) {
    return refuse(fmt::format("has {} layers; a model has at most {}", layers, kMostLayers));
  }
  if (parameters > kMost) return refuse("has more than 1e18 parameters");
  const auto tied = static_cast<double>(model.tied_parameters);
  for (const LayerRun* run : {&model.layers.front(), &model.layers.back()}) {
    if (tied <= parameters_of(model.types[run->type])) continue;
    return refuse("tied_parameters are more than the first or the last layer has");
  }
  return {};
}

Result<Model> model_from_json(const Json& document, std::string_view name, std::string_view text) {
  return ModelReader(name, text).read(document);
}

Result<Model> read_model(std::string_view text, std::string_view name,
                         const ModelOptions& options) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string_view::npos && text[first] == '{';
  CORRO_ASSIGN(const Json document, is_json ? parse_json(text, name) : parse_yaml(text, name));
  if (!document.is_object() || !document.contains("corro_model")) {
    return model_from_config(document, name, text, options);
  }
  if (options.sequence != 0) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("{}: sequence: a model file has its own, and cannot be given another", name));
  }
  return model_from_json(document, name, text);
}

}  // namespace corro::plan
