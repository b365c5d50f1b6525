// LogReader: lines of the files in which a launcher keeps what its ranks print, while they grow.
//
//   LogReader reader("corro-runs/x");
//   CORRO_ASSIGN(LogPart newest, reader.read(3, std::nullopt));      // of rank-3.log
//   CORRO_ASSIGN(LogPart older, reader.read(3, newest.lines[0].at));
//   CORRO_ASSIGN(LogMatches found, reader.search("loss", std::nullopt));  // of all ranks
//
// Each call reads a bounded part of a file, however fast the file grows: 256 KiB for lines, 16 MiB
// for a search, from the end. To number lines a call reads on from where the last one has counted,
// at most 8 MiB; lines that are beyond have no number yet.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "dashboard/log_text.h"
#include "io/fd.h"

namespace corro::dashboard {

struct LogLine {
  uint64_t at = 0;                      ///< Where it begins in the file, in bytes.
  std::optional<uint64_t> number = {};  ///< From 1 on; none: not counted yet.
  std::string text = {};                ///< As shown_line() has it.
};

/// Lines that stand behind each other.
struct LogPart {
  uint64_t size = 0;  ///< Of the file, in bytes.
  std::vector<LogLine> lines = {};
};

struct LogMatch {
  int place = 0;
  LogLine line = {};
};

struct LogMatches {
  std::vector<LogMatch> lines = {};  ///< By place, then as they stand in the file.
  uint64_t older = 0;                ///< Matches before those, which are left out.
  uint64_t unread = 0;               ///< Bytes at the beginnings of files that were not searched.
};

/// Externally synchronized. Blocks as long as the disk does.
class LogReader {
 public:
  static constexpr uint64_t kMostReadBytes = 256U << 10U;
  static constexpr uint64_t kMostSearchBytes = 16U << 20U;
  static constexpr uint64_t kMostCountedBytes = 8U << 20U;
  static constexpr size_t kMostLines = 500;
  static constexpr size_t kMostMatches = 300;

  /// `folder`: where rank-N.log of each place N is; "": nowhere. It need not be there.
  explicit LogReader(std::string folder) : folder_(std::move(folder)) {}

  /// The last lines that begin before this byte; none: the newest ones. NOT_FOUND: there is no such
  /// file.
  [[nodiscard]] Result<LogPart> read(int place, std::optional<uint64_t> before);
  /// The newest lines in which the text stands, in the file of this place or (none) in all. Small and
  /// capital letters of ASCII are equal. NOT_FOUND: there is no such file.
  [[nodiscard]] Result<LogMatches> search(const std::string& text, std::optional<int> place);

 private:
  struct File {
    int place = 0;
    io::Fd fd = {};
    uint64_t size = 0;
  };
  [[nodiscard]] Result<File> open(int place) const;
  [[nodiscard]] std::vector<File> open_all() const;
  void count(const File& file, uint64_t end, uint64_t& budget);
  [[nodiscard]] std::optional<uint64_t> lines_before(const File& file, uint64_t at) const;
  void search(const File& file, const std::string& text, uint64_t bytes, size_t most,
              LogMatches& matches);

  const std::string folder_;
  std::map<int, LineIndex> indices_;  ///< By place.
};

}  // namespace corro::dashboard
