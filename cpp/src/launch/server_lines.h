// ServerLines: what table servers print, as lines for the screen with the server in front. It is
// about the job, as corro's own lines are: no rank has printed it.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "io/output.h"
#include "screen/lines.h"

namespace corro::launch {

/// Loop-confined.
class ServerLines {
 public:
  /// Takes bytes as they come; returns the lines that they complete: "[server 0] ready\n".
  [[nodiscard]] std::string feed(size_t server, io::Output stream, std::string_view bytes);
  /// The stream has ended: a last line without an end counts.
  [[nodiscard]] std::string finish(size_t server, io::Output stream);

 private:
  [[nodiscard]] screen::LineSplitter& cutter(size_t server, io::Output stream) {
    if (server >= cutters_.size()) cutters_.resize(server + 1);  // They come while the job runs.
    return cutters_[server][static_cast<size_t>(stream)];
  }

  std::vector<std::array<screen::LineSplitter, io::kOutputs.size()>> cutters_;  ///< By io::Output.
};

}  // namespace corro::launch
