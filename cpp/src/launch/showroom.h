// Showroom: where a job is shown (--dashboard), and with which token; the same one if the job begins
// anew.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/status.h"
#include "dashboard/dashboard.h"

namespace corro::launch {

/// Externally synchronized.
class Showroom {
 public:
  /// `wanted`: what the user has typed; "": the job is shown nowhere. Draws the token.
  static Result<Showroom> create(const std::string& wanted);
  /// Starts a thread. `logs`: the folder of the ranks' logs. Null: the job is shown nowhere. The
  /// failure names the option.
  [[nodiscard]] Result<std::unique_ptr<dashboard::Dashboard>> open(const std::string& logs);
  /// The address for people, with the token, the first time that there is one; "" after that.
  /// `host`: the name of this machine.
  [[nodiscard]] std::string take_news(const std::string& host);

 private:
  std::string address_;  ///< "": nowhere. Once it was opened, with the port that was taken.
  std::string token_;
  bool is_told_ = false;
};

}  // namespace corro::launch
