#include "launch/output_files.h"

#include <fmt/format.h>

namespace corro::launch {
namespace {

constexpr std::string_view kOutputDir = "--output-dir";

}  // namespace

Result<OutputFiles> OutputFiles::create(const std::string& directory, int ranks, Prefix prefix,
                                        Earlier earlier) {
  OutputFiles files;
  files.prefix_ = std::move(prefix);
  const size_t width = std::to_string(ranks - 1).size();
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string folder = fmt::format("{}/rank.{:0{}}", directory, rank, width);
    CORRO_TRY(make_directories(folder, kOutputDir));
    CORRO_ASSIGN(AppendedFile out, AppendedFile::create(folder + "/stdout", kOutputDir, earlier));
    CORRO_ASSIGN(AppendedFile err, AppendedFile::create(folder + "/stderr", kOutputDir, earlier));
    files.streams_.push_back({Stream{std::move(out)}, Stream{std::move(err)}});
  }
  return files;
}

Status OutputFiles::append(int rank, io::Output stream, std::string_view bytes) {
  Stream& to = stream_of(rank, stream);
  if (!prefix_) return write(to, bytes);
  return write(to, to.lines.feed(bytes, [&] { return prefix_(rank, stream); }));
}

Status OutputFiles::finish(int rank, io::Output stream) {
  Stream& to = stream_of(rank, stream);
  return write(to, to.lines.finish([&] { return prefix_(rank, stream); }));
}

OutputFiles::Prefix file_prefix(const screen::Show& show, std::function<std::string()> time) {
  if (show.streams && !show.timestamps) return screen::stream_prefix;
  if (show.streams)
    return [time = std::move(time)](int rank, io::Output stream) {
      return time() + screen::stream_prefix(rank, stream);
    };
  if (!show.timestamps) return nullptr;
  return [time = std::move(time)](int /*rank*/, io::Output /*stream*/) { return time() + " "; };
}

Status OutputFiles::write(const Stream& stream, std::string_view bytes) {
  if (failed_) return {};
  Status status = stream.file.append(bytes);
  failed_ = !status.ok();
  return status;
}

}  // namespace corro::launch
