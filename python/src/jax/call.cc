#include "call.h"

#include <memory>
#include <string>

namespace corro::jax {
namespace {

/// The oldest version of the interface that has what is declared in c_api.h.
constexpr int kMajor = 0, kMinor = 1;
/// The version whose states are declared there.
constexpr int kMinorWithStates = 3;

/// XLA's number for the type of the states.
TypeId* type_of_states(const Api& api) {
  static const TypeInfo kInfo = {.struct_size = sizeof kInfo,
                                 .extensions = nullptr,
                                 .destroy = [](void* state) { delete static_cast<int*>(state); }};
  static TypeId made = [&api] {
    TypeId type = {.number = 0};
    static constexpr char kName[] = "corro_copy";
    RegisterType said = {.struct_size = sizeof said,
                         .extensions = nullptr,
                         .name = {.data = kName, .size = sizeof kName - 1},
                         .type = &type,
                         .info = &kInfo};
    (void)api.register_type(&said);
    return type;
  }();
  return &made;
}

}  // namespace

bool Call::tell_metadata() const {
  Extension* const extension = frame_.extensions;
  if (extension == nullptr || extension->type != kMetadataExtension) return false;
  Version& version = reinterpret_cast<MetadataExtension*>(extension)->metadata->version;
  const bool says = frame_.api != nullptr;
  version.major = says ? frame_.api->version.major : kMajor;
  version.minor = says ? frame_.api->version.minor : kMinor;
  return true;
}

int64_t Call::whole(std::string_view name) const {
  const auto* const found = static_cast<const Scalar*>(attribute(name, kScalarAttribute));
  return found == nullptr ? 0 : *static_cast<const int64_t*>(found->value);
}

double Call::number(std::string_view name) const {
  const auto* const found = static_cast<const Scalar*>(attribute(name, kScalarAttribute));
  return found == nullptr ? 0 : *static_cast<const double*>(found->value);
}

std::string Call::text(std::string_view name) const {
  const auto* const found = static_cast<const ByteSpan*>(attribute(name, kStringAttribute));
  return found == nullptr ? std::string() : std::string(found->data, found->size);
}

const void* Call::attribute(std::string_view name, int32_t type) const {
  const Attributes& attributes = frame_.attributes;
  for (int64_t i = 0; i < attributes.size; ++i)
    if (std::string_view(attributes.names[i]->data, attributes.names[i]->size) == name)
      return attributes.types[i] == type ? attributes.values[i] : nullptr;
  return nullptr;
}

Error* Call::error(corro_code code, const std::string& message) const {
  return make_error(api(), code, message.c_str());
}

bool Call::keep(int number) const {
  if (api().version.minor != kMinorWithStates) return false;
  auto state = std::make_unique<int>(number);
  SetState said = {.struct_size = sizeof said,
                   .extensions = nullptr,
                   .context = frame_.context,
                   .stage = Stage::kInstantiate,
                   .type = type_of_states(api()),
                   .state = state.get()};
  if (api().set_state(&said) != nullptr) return false;
  (void)state.release();
  return true;
}

int Call::kept() const {
  if (api().version.minor != kMinorWithStates) return 0;
  GetState asked = {.struct_size = sizeof asked,
                    .extensions = nullptr,
                    .context = frame_.context,
                    .stage = Stage::kInstantiate,
                    .type = type_of_states(api()),
                    .state = nullptr};
  return api().get_state(&asked) == nullptr ? *static_cast<int*>(asked.state) : 0;
}

Future* Call::go_on() const {
  FutureCreate made = {.struct_size = sizeof made, .extensions = nullptr, .future = nullptr};
  if (api().create_future(&made) != nullptr) return nullptr;
  frame_.future = made.future;
  return made.future;
}

Error* make_error(const Api& api, corro_code code, const char* message) {
  const std::string numbered = "corro error " + std::to_string(code) + ": " + message;
  ErrorCreate said = {
      .struct_size = sizeof said, .extensions = nullptr, .message = numbered.c_str(), .code = code};
  return api.create_error(&said);
}

}  // namespace corro::jax
