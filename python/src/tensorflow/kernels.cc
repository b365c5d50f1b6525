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
  unsigned char numbers_runs = 0;
  TF_OpKernelConstruction_GetAttrBool(op, "numbers_runs", &numbers_runs, status.get());
  numbers_runs_ = numbers_runs != 0;
  TF_OpKernelConstruction_GetAttrInt32(op, "process_set_id", &group_, status.get());
}

std::string Kernel::name_of_run(const InFlight& call) const {
  if (!numbers_runs_ || TF_GetFrameId == nullptr || TF_GetIterId == nullptr) return name_;
  // A frame is a loop, in one run of the loop around it; TensorFlow makes its number of their names.
  return name_ + "@" + std::to_string(TF_GetFrameId(call.context())) + "." +
         std::to_string(TF_GetIterId(call.context()));
}

void Kernel::start(std::unique_ptr<InFlight> call) const {
  Status status;
  corro_error error;
  const plugin::HeldGroup group(group_, error);
  if (group.get() == nullptr) {
    status.set(error);
    return InFlight::fail(std::move(call), status);
  }
  const std::string name = name_of_run(*call);
  const int count = tensors(*call);
  std::vector<Description> descriptions(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    Description& description = descriptions[static_cast<size_t>(i)];
    description.name = plugin::name_of(name, i, count);
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
