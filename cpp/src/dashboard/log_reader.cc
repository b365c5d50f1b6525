// The story of a number: a file's index has counted the lines of its first bytes. A call counts on,
// within its budget, and knows the number of any line that begins in what is counted: that of the
// mark before it, and the lines from there. So the newest lines of a file that grows by less than
// the budget a second have numbers, and those of a faster one have none until it rests.
//
// A file may be cut off and written anew while it is read (a job that begins once more). Its index
// then knows more bytes than there are, and is dropped. What a call reads short of what the file's
// size has promised, it does without.
#include "dashboard/log_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>

namespace corro::dashboard {
namespace {

constexpr uint64_t kBlockBytes = 64U << 10U;

/// The bytes of [begin, end), or as many of them as there are.
std::string read_range(const io::Fd& fd, uint64_t begin, uint64_t end) {
  std::string bytes(end - begin, '\0');
  size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t more =
        pread(fd.get(), bytes.data() + got, bytes.size() - got, static_cast<off_t>(begin + got));
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) break;
    got += static_cast<size_t>(more);
  }
  bytes.resize(got);
  return bytes;
}

/// Bytes that begin with a whole line, and where they stand in the file.
struct Window {
  uint64_t at = 0;
  std::string_view text;
};

/// `bytes` stand at `at`. Of a line without an end there its rest is all that can be shown.
Window whole_lines(std::string_view bytes, uint64_t at) {
  const size_t end = bytes.find('\n');
  const bool is_begun = at > 0 && end != std::string_view::npos;
  const size_t skipped = is_begun ? end + 1 : 0;
  return {.at = at + skipped, .text = bytes.substr(skipped)};
}

}  // namespace

Result<LogReader::File> LogReader::open(int place) const {
  const std::string name = fmt::format("rank-{}.log", place);
  // Nothing else than a file of the folder itself, which no reader may be kept waiting by.
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  File file{.place = place};
  if (!folder_.empty()) file.fd.reset(::open((folder_ + "/" + name).c_str(), kFlags));
  struct stat facts{};
  const bool is_file =
      file.fd.valid() && fstat(file.fd.get(), &facts) == 0 && S_ISREG(facts.st_mode);
  if (!is_file) return Status(Code::kNotFound, fmt::format("this job has no {}", name));
  file.size = static_cast<uint64_t>(facts.st_size);
  return file;
}

/// Launchers make the files of all places at the beginning.
std::vector<LogReader::File> LogReader::open_all() const {
  std::vector<File> files;
  while (true) {
    auto file = open(static_cast<int>(files.size()));
    if (!file.ok()) return files;
    files.push_back(std::move(*file));
  }
}

void LogReader::count(const File& file, uint64_t end, uint64_t& budget) {
  LineIndex& index = indices_[file.place];
  if (index.counted() > file.size) index = LineIndex();
  while (index.counted() < end && budget > 0) {
    const uint64_t begin = index.counted();
    const uint64_t bytes = std::min({end - begin, kBlockBytes, budget});
    const std::string block = read_range(file.fd, begin, begin + bytes);
    if (block.empty()) return;
    index.feed(block);
    budget -= block.size();
  }
}

std::optional<uint64_t> LogReader::lines_before(const File& file, uint64_t at) const {
  const LineIndex& index = indices_.at(file.place);
  if (at > index.counted()) return std::nullopt;
  const LineIndex::Mark mark = index.mark_before(at);
  const std::string bytes = read_range(file.fd, mark.at, at);
  return mark.lines + static_cast<uint64_t>(std::ranges::count(bytes, '\n'));
}

Result<LogPart> LogReader::read(int place, std::optional<uint64_t> before) {
  CORRO_ASSIGN(const File file, open(place));
  const uint64_t end = std::min(before.value_or(file.size), file.size);
  const uint64_t begin = end - std::min(end, kMostReadBytes);
  // The last line may go on behind `end`.
  const std::string bytes = read_range(file.fd, begin, std::min(file.size, end + kMostLineBytes));
  const Window window = whole_lines(bytes, begin);
  uint64_t budget = kMostCountedBytes;
  count(file, window.at, budget);
  std::optional<uint64_t> number = lines_before(file, window.at);
  std::deque<LogLine> lines;
  for (const std::string_view line : cut_lines(window.text)) {
    const uint64_t at = window.at + static_cast<uint64_t>(line.data() - window.text.data());
    if (at >= end) break;
    if (number) ++*number;
    lines.push_back({.at = at, .number = number, .text = shown_line(line)});
    if (lines.size() > kMostLines) lines.pop_front();
  }
  return LogPart{.size = file.size, .lines = {lines.begin(), lines.end()}};
}

Result<LogMatches> LogReader::search(const std::string& text, std::optional<int> place) {
  std::vector<File> files;
  if (place) {
    CORRO_ASSIGN(File file, open(*place));
    files.push_back(std::move(file));
  } else {
    files = open_all();
  }
  // A file that needs less than its share leaves the rest to those behind it.
  LogMatches matches;
  uint64_t bytes = kMostSearchBytes;
  for (size_t i = 0; i < files.size(); ++i) {
    const size_t left = files.size() - i;
    const uint64_t share = std::min(files[i].size, bytes / left);
    const size_t most = (kMostMatches - matches.lines.size()) / left;
    search(files[i], text, share, most, matches);
    bytes -= share;
  }
  return matches;
}

/// The last `bytes` of one file; at most so many matches.
void LogReader::search(const File& file, const std::string& text, uint64_t bytes, size_t most,
                       LogMatches& matches) {
  const uint64_t begin = file.size - bytes;
  const std::string read = read_range(file.fd, begin, file.size);
  const Window window = whole_lines(read, begin);
  uint64_t budget = kMostCountedBytes;
  count(file, window.at, budget);
  const std::optional<uint64_t> before = lines_before(file, window.at);
  std::deque<LogLine> found;
  find_lines(window.text, text, [&](const Found& line) {
    found.push_back({.at = window.at + line.at, .text = shown_line(line.piece)});
    if (before) found.back().number = *before + line.before + 1;
    if (found.size() <= most) return;
    found.pop_front();
    ++matches.older;
  });
  for (LogLine& line : found)
    matches.lines.push_back({.place = file.place, .line = std::move(line)});
  matches.unread += window.at;
}

}  // namespace corro::dashboard
