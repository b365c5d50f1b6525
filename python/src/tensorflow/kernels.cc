#include "kernels.h"

#include <utility>

#include "../plugin/held_group.h"

namespace corro::tensorflow {
namespace {

std::string without_scope(const std::string& name) { return name.substr(name.rfind('/') + 1); }

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
  corro_error error;
  const plugin::HeldGroup group(group_, error);
  if (group.get() == nullptr) {
    status.set(error);
    return InFlight::fail(std::move(call), status);
  }
  const int count = tensors(*call);
  std::vector<Description> descriptions(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    Description& description = descriptions[static_cast<size_t>(i)];
    description.name = plugin::name_of(name_, i, count);
    describe(*call, i, group.get(), description, status);
    if (!status.ok()) return InFlight::fail(std::move(call), status);
  }
  corro_work* work = nullptr;
  const corro_code code = plugin::submit(group.get(), descriptions, &work, &error);
  if (code == CORRO_OK) return InFlight::finish(std::move(call), work);
  status.set(error);
  InFlight::fail(std::move(call), status);
}

}  // namespace corro::tensorflow
