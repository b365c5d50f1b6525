// What the tests of named operations submit.
#pragma once

#include <string>
#include <utility>

#include "named/named_messages.h"

namespace corro::named {

/// A sum of `count` f32 under this name.
inline NamedEntry entry(std::string name, uint64_t count = 16) {
  return {.name = std::move(name),
          .op = {.signature = {.kind = OpKind::kAllreduce, .dtype = DType::kF32, .count = count}}};
}

}  // namespace corro::named
