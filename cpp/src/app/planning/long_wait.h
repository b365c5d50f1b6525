// A line on the terminal while something takes longer than a second.
#pragma once

#include <string>
#include <thread>

#include "base/guarded.h"

namespace corro::app {

/// Shows "what ..." on stderr if it still exists after a second and stderr is a terminal; takes it
/// away at its end. Confined to the thread that made it.
class LongWait {
 public:
  explicit LongWait(std::string what);
  ~LongWait();
  LongWait(const LongWait&) = delete;
  LongWait& operator=(const LongWait&) = delete;

 private:
  void watch();

  std::string what_;
  Guarded<bool> over_;
  std::thread thread_;  ///< None without a terminal.
};

}  // namespace corro::app
