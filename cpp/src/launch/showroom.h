// Showroom: where a job is shown (--dashboard), and with which token; the same one if the job begins
// anew.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "dashboard/dashboard.h"
#include "dashboard/replay.h"

namespace corro::launch {

/// Externally synchronized.
class Showroom {
 public:
  /// `wanted`: what the user has typed behind the option; "": the job is shown nowhere. Draws the
  /// token.
  static Result<Showroom> create(std::string option, const std::string& wanted);
  /// Starts a thread that shows the board. `logs`: the folder of the ranks' logs. Null: the job is
  /// shown nowhere. The failure names the option.
  [[nodiscard]] Result<std::unique_ptr<dashboard::Dashboard>> open(
      const dashboard::SharedBoard& board, const std::string& logs);
  /// The same for a job that is over.
  [[nodiscard]] Result<std::unique_ptr<dashboard::Replay>> open_past(const std::string& logs,
                                                                     dashboard::History history);
  /// The address for people, with the token, the first time that there is one; "" after that.
  /// `host`: the name of this machine.
  [[nodiscard]] std::string take_news(const std::string& host);

 private:
  std::string option_;   ///< For messages.
  std::string address_;  ///< "": nowhere. Once it was opened, with the port that was taken.
  std::string token_;
  bool is_told_ = false;
};

}  // namespace corro::launch
