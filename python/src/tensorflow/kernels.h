// The CPU kernels of the collectives in ops.cc: each call starts named operations, one for each
// tensor, as one unit.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../plugin/description.h"
#include "c_api.h"
#include "corro/corro.h"
#include "in_flight.h"
#include "status.h"

namespace corro::tensorflow {

using plugin::Description;

/// What is known of an op before it is called, and how its operations are described.
class Kernel {
 public:
  /// Fills `status` if there can be no such op.
  Kernel(TF_OpKernelConstruction* op, const Status& status);
  virtual ~Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  /// Starts the operations. The call ends when they are over, or has failed.
  void start(std::unique_ptr<InFlight> call) const;

 protected:
  /// Describes tensor i and its output as an operation of the group; fills `status` if it cannot be.
  virtual void describe(InFlight& call, int i, corro_group* group, Description& description,
                        Status& status) const = 0;
  /// How many tensors the call has.
  [[nodiscard]] virtual int tensors(const InFlight& call) const {
    return TF_NumInputs(call.context());
  }

 private:
  /// The name that all ranks know this run by.
  [[nodiscard]] std::string name_of_run(const InFlight& call) const;

  std::string name_;
  bool numbers_runs_ = false;
  int32_t group_ = 0;
};

/// Behind the name of a collective that runs in the order of the program.
constexpr const char* kInOrder = "InOrder";

/// Registers them all.
void register_kernels();

}  // namespace corro::tensorflow
