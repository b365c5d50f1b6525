// HeldGroup: a group that a kernel has found by its number, held while it is used.
#pragma once

#include "corro/corro.h"
#include "status.h"

namespace corro::tensorflow {

class HeldGroup {
 public:
  /// Fills `status` if there is none of this number.
  HeldGroup(int32_t number, Status& status) {
    corro_error error;
    if (corro_group_find(number, &group_, &error) != CORRO_OK) status.set(error);
  }
  ~HeldGroup() {
    if (group_ != nullptr) corro_group_let_go(group_);
  }
  HeldGroup(const HeldGroup&) = delete;
  HeldGroup& operator=(const HeldGroup&) = delete;

  [[nodiscard]] corro_group* get() const { return group_; }

 private:
  corro_group* group_ = nullptr;
};

}  // namespace corro::tensorflow
