#include "description.h"

namespace corro::plugin {
namespace {

/// The pointers of an operation whose description has its place.
void point(Description& description) {
  corro_op& op = description.op;
  op.struct_size = sizeof op;
  op.name = description.name.c_str();
  description.dims.reserve(1);  // A scalar's dims are an address too.
  op.dims = description.dims.data();
  op.ndim = static_cast<int32_t>(description.dims.size());
  if (!description.counts.empty()) op.counts = description.counts.data();
  if (!description.send_counts.empty()) op.send_counts = description.send_counts.data();
}

}  // namespace

std::string name_of(const std::string& call, int i, int count) {
  return count == 1 ? call : call + "." + std::to_string(i);
}

corro_code submit(corro_group* group, std::vector<Description>& descriptions, corro_work** work,
                  corro_error* error) {
  std::vector<corro_op> ops;
  ops.reserve(descriptions.size());
  for (Description& description : descriptions) {
    point(description);
    ops.push_back(description.op);
  }
  return corro_submit(group, ops.data(), ops.size(), CORRO_NAMED, work, error);
}

}  // namespace corro::plugin
