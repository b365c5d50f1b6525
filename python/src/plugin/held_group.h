// HeldGroup: a group that a plug-in of a framework has found by its number, held while it is used.
#pragma once

#include <cstdint>

#include "corro/corro.h"

namespace corro::plugin {

class HeldGroup {
 public:
  /// Null, and `error` filled, if there is none of this number.
  HeldGroup(int32_t number, corro_error& error) { (void)corro_group_find(number, &group_, &error); }
  ~HeldGroup() {
    if (group_ != nullptr) corro_group_let_go(group_);
  }
  HeldGroup(const HeldGroup&) = delete;
  HeldGroup& operator=(const HeldGroup&) = delete;

  [[nodiscard]] corro_group* get() const { return group_; }

 private:
  corro_group* group_ = nullptr;
};

}  // namespace corro::plugin
