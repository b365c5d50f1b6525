// Showroom: where a job is shown (--dashboard, or to who asks for its page), and with which token; the
// same ones if the job begins anew.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "dashboard/dashboard.h"
#include "dashboard/replay.h"
#include "launch/plan.h"

namespace corro::launch {

/// Externally synchronized.
class Showroom {
 public:
  /// `wanted`: what the user has typed behind the option; "": the job is shown nowhere until somebody
  /// asks. Draws the token.
  static Result<Showroom> create(std::string option, const std::string& wanted);
  /// Starts a thread that shows the board of this job, with its logs, and asks its launcher for
  /// stacks and traces. Null: the job is shown nowhere. The failure names the option.
  [[nodiscard]] Result<std::unique_ptr<dashboard::Dashboard>> open(
      const dashboard::SharedBoard& board, const LaunchPlan& plan);
  /// The same for who asks; on loopback, where the user has named no address.
  [[nodiscard]] Result<std::unique_ptr<dashboard::Dashboard>> open_for_asker(
      const dashboard::SharedBoard& board, const LaunchPlan& plan);
  /// The same for a job that is over.
  [[nodiscard]] Result<std::unique_ptr<dashboard::Replay>> open_past(const std::string& logs,
                                                                     dashboard::History history);
  /// The address for people, with the token; "": the job is shown nowhere. `host`: the name of this
  /// machine.
  [[nodiscard]] std::string address(const std::string& host) const;
  /// The same of what the user has asked for, once: "" after that.
  [[nodiscard]] std::string take_news(const std::string& host);

 private:
  [[nodiscard]] Result<std::unique_ptr<dashboard::Dashboard>> open_here(
      const dashboard::SharedBoard& board, const LaunchPlan& plan);

  std::string option_;   ///< For messages.
  std::string address_;  ///< "": nowhere. Once it was opened, with the port that was taken.
  std::string token_;
  bool is_wanted_ = false;  ///< The user has named an address.
  bool is_told_ = false;
};

}  // namespace corro::launch
