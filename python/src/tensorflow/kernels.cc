#include "kernels.h"

#include <utility>

#include "held_group.h"

namespace corro::tensorflow {
namespace {

std::string without_scope(const std::string& name) { return name.substr(name.rfind('/') + 1); }

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

Kernel::Kernel(TF_OpKernelConstruction* op, const Status& status) {
  const TF_StringView name = TF_OpKernelConstruction_GetName(op);
  name_.assign(name.data, name.len);
  unsigned char ignores_scope = 0;
  TF_OpKernelConstruction_GetAttrBool(op, "ignore_name_scope", &ignores_scope, status.get());
  if (ignores_scope != 0) name_ = without_scope(name_);
  TF_OpKernelConstruction_GetAttrInt32(op, "process_set_id", &group_, status.get());
}

void Kernel::start(std::unique_ptr<InFlight> call) const {
  Status status;
  const HeldGroup group(group_, status);
  if (!status.ok()) return InFlight::fail(std::move(call), status);
  const int count = tensors(*call);
  std::vector<Description> descriptions(static_cast<size_t>(count));
  std::vector<corro_op> ops;
  for (int i = 0; i < count; ++i) {
    Description& description = descriptions[static_cast<size_t>(i)];
    description.name = count == 1 ? name_ : name_ + "." + std::to_string(i);
    describe(*call, i, group.get(), description, status);
    if (!status.ok()) return InFlight::fail(std::move(call), status);
    point(description);
    ops.push_back(description.op);
  }
  corro_work* work = nullptr;
  corro_error error;
  const corro_code code =
      corro_submit(group.get(), ops.data(), ops.size(), CORRO_NAMED, &work, &error);
  if (code == CORRO_OK) return InFlight::finish(std::move(call), work);
  status.set(error);
  InFlight::fail(std::move(call), status);
}

}  // namespace corro::tensorflow
