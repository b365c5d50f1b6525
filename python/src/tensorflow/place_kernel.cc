#include "place_kernel.h"

#include <cstdint>
#include <memory>

#include "../plugin/held_group.h"
#include "corro/corro.h"
#include "in_flight.h"

namespace corro::tensorflow {
namespace {

/// The numbers of attribute `what`.
enum class What : int32_t { kRank, kSize, kLocalRank, kLocalSize, kIncluded };

struct Place {
  int32_t group = 0;
  int32_t what = 0;
};

int32_t answer(What what, corro_group* group) {
  const corro_engine* const engine = corro_group_engine(group);
  switch (what) {
    case What::kRank:
      return corro_group_rank(group);
    case What::kSize:
      return corro_group_size(group);
    case What::kLocalRank:
      return corro_engine_local_rank(engine);
    case What::kLocalSize:
      return corro_engine_local_size(engine);
    case What::kIncluded:
      return 1;
  }
  return 0;
}

void* create_place(TF_OpKernelConstruction* op) {
  const Status status;
  auto place = std::make_unique<Place>();
  TF_OpKernelConstruction_GetAttrInt32(op, "process_set_id", &place->group, status.get());
  TF_OpKernelConstruction_GetAttrInt32(op, "what", &place->what, status.get());
  if (status.ok()) return place.release();
  TF_OpKernelConstruction_Failure(op, status.get());
  return nullptr;
}

void tell_place(void* kernel, TF_OpKernelContext* context) {
  const Place& place = *static_cast<const Place*>(kernel);
  const auto what = static_cast<What>(place.what);
  Status status;
  int32_t value = 0;
  {
    corro_error error;
    const plugin::HeldGroup group(place.group, error);
    if (group.get() != nullptr)
      value = answer(what, group.get());
    else
      status.set(error);
  }
  const Status of_output;
  if (status.ok() || what == What::kIncluded) {
    const Tensor output(
        TF_AllocateOutput(context, 0, TF_INT32, nullptr, 0, sizeof value, of_output.get()));
    if (of_output.ok()) *static_cast<int32_t*>(TF_TensorData(output.get())) = value;
    if (of_output.ok()) return;
  }
  TF_OpKernelContext_Failure(context, status.ok() ? of_output.get() : status.get());
}

void delete_place(void* kernel) { delete static_cast<Place*>(kernel); }

}  // namespace

void register_place_kernel() {
  const Status status;
  TF_RegisterKernelBuilder(
      "CorroPlace",
      TF_NewKernelBuilder("CorroPlace", "CPU", &create_place, &tell_place, &delete_place),
      status.get());
}

}  // namespace corro::tensorflow
