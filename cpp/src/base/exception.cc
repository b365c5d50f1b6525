#include "base/exception.h"

#include <new>

namespace corro {

Status status_of(const std::exception& thrown) {
  if (dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr)
    return {Code::kResourceExhausted, "out of memory"};
  return {Code::kInternal, thrown.what()};
}

}  // namespace corro
