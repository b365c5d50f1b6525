// PageInquirer: the dashboard's way to the ranks. It asks as `corro stacks` and `corro trace` do, through
// the socket of the launcher's own job: so the loop hears one kind of question, and the dashboard's
// thread shares nothing with it.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "dashboard/inspection.h"
#include "launch/control_socket.h"

namespace corro::launch {

/// Externally synchronized.
class PageInquirer final : public dashboard::Inquirer {
 public:
  /// `job`: of own_job().
  explicit PageInquirer(RunningJob job) : job_(std::move(job)) {}

  Status ask(dashboard::Inspected what, uint32_t steps) override;
  Result<std::string> read() override;
  [[nodiscard]] size_t received() const override { return inquiry_ ? inquiry_->received() : 0; }

 private:
  const RunningJob job_;
  std::optional<Inquiry> inquiry_;  ///< None: nothing was asked.
};

}  // namespace corro::launch
