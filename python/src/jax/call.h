// Call: what XLA says of one call of the plug-in, and what the plug-in answers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "c_api.h"
#include "corro/corro.h"

namespace corro::jax {

/// Valid as long as the call. Attributes are those that primitives.py gives each operation.
class Call {
 public:
  explicit Call(CallFrame* frame) : frame_(*frame) {}

  /// XLA only asks which version of its interface this is.
  [[nodiscard]] bool tell_metadata() const;

  [[nodiscard]] int64_t whole(std::string_view name) const;
  [[nodiscard]] double number(std::string_view name) const;
  [[nodiscard]] std::string text(std::string_view name) const;

  [[nodiscard]] int size() const { return static_cast<int>(frame_.arguments.size); }
  [[nodiscard]] const Buffer& argument(int i) const { return buffer(frame_.arguments, i); }
  [[nodiscard]] const Buffer& result(int i) const { return buffer(frame_.results, i); }

  [[nodiscard]] const Api& api() const { return *frame_.api; }
  [[nodiscard]] Error* error(corro_code code, const std::string& message) const;
  /// Keeps a number with this custom call of a compiled program, when it is instantiated; false if
  /// this XLA cannot.
  [[nodiscard]] bool keep(int number) const;
  /// The number, when it is executed; 0 if this XLA keeps none.
  [[nodiscard]] int kept() const;
  /// The call goes on after it has returned; null without memory.
  [[nodiscard]] Future* go_on() const;

 private:
  static const Buffer& buffer(const Buffers& buffers, int i) {
    return *static_cast<const Buffer*>(buffers.each[i]);
  }
  [[nodiscard]] const void* attribute(std::string_view name, int32_t type) const;

  CallFrame& frame_;
};

/// Its text begins with the code's number: JAX may pass on the text alone.
[[nodiscard]] Error* make_error(const Api& api, corro_code code, const char* message);

}  // namespace corro::jax
