// ProgressLine: what goes on for a while, in one line of a terminal. A reason in the cluster's words
// may be longer than the line, and its end is often what matters: then the whole of it is a line of
// its own as well, once.
#pragma once

#include <cstddef>
#include <string>

namespace corro::kube {

/// Pure. Loop-confined.
class ProgressLine {
 public:
  struct Fitted {
    std::string status;  ///< Not wider than the terminal.
    std::string whole;   ///< To be said before; "": `status` is whole, or it was said.
  };
  /// A line that differs from the last one that was said whole in numbers alone (such as the time of
  /// the next trial) is not new.
  [[nodiscard]] Fitted fit(const std::string& line, size_t columns);

 private:
  std::string said_;  ///< Without numbers.
};

/// Of the terminal that `file` is; 100 if it does not say.
[[nodiscard]] size_t columns_of_terminal(int file);

}  // namespace corro::kube
