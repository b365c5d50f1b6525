// The whole output of every rank and table server, byte for byte, in a file of its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "launch/appended_file.h"

namespace corro::launch {

/// Loop-confined.
class LogFiles {
 public:
  /// Makes the directory and its parents, and opens rank-N.log for each rank and server-N.log for
  /// each table server. Of an earlier job failure.json, error files and logs of further ones are
  /// removed. The failure says what to do: --log-dir.
  static Result<LogFiles> create(const std::string& directory, int ranks, int servers,
                                 Earlier earlier);

  /// Appends to a rank's file. The first failure (a full disk) is returned, later ones are not.
  [[nodiscard]] Status append(int rank, std::string_view bytes) {
    return append_to(files_[static_cast<size_t>(rank)], bytes);
  }
  [[nodiscard]] Status append_server(size_t server, std::string_view bytes) {
    CORRO_TRY(open_servers(server + 1));
    return failed_ ? Status() : append_to(servers_[server], bytes);
  }
  /// Writes a small file into the directory.
  [[nodiscard]] Status write_file(const std::string& name, std::string_view text) const;
  [[nodiscard]] const std::string& directory() const { return directory_; }

 private:
  Status open_servers(size_t count);
  Status append_to(AppendedFile& file, std::string_view bytes);

  std::string directory_;
  std::vector<AppendedFile> files_;    ///< By rank.
  std::vector<AppendedFile> servers_;  ///< By number.
  bool failed_ = false;
};

}  // namespace corro::launch
