// Description: an operation that a plug-in of a framework is about to start, and what it points to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "corro/corro.h"

namespace corro::plugin {

/// An operation, and what its pointers point to until it is submitted.
struct Description {
  corro_op op{};
  std::string name;
  std::vector<uint64_t> dims, counts, send_counts;
};

/// The name of tensor i of a call that has so many, all of which the ranks have to find.
[[nodiscard]] std::string name_of(const std::string& call, int i, int count);

/// Starts them as one unit, by their names. Does not block.
[[nodiscard]] corro_code submit(corro_group* group, std::vector<Description>& descriptions,
                                corro_work** work, corro_error* error);

}  // namespace corro::plugin
