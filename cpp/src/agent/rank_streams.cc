#include "agent/rank_streams.h"

#include <algorithm>

namespace corro::agent {
namespace {

constexpr int kPipeReads = 32;  ///< More than a pipe holds.

}  // namespace

void RankStreams::hear(const Subject& about, const Input& input) {
  if (const auto rank = station_.course.find(about))
    station_.ranks[*rank].give(input.bytes, input.ends);
}

void RankStreams::hear(const Subject& /*about*/, const Credit& credit) {
  const int64_t missing = static_cast<int64_t>(kOutputCredit) - credit_;
  credit_ += static_cast<int64_t>(std::min(credit.bytes, static_cast<uint64_t>(missing)));
}

void RankStreams::hear(const Subject& /*about*/, const Resize& sizes) {
  station_.ranks.resize_terminals(sizes);
}

void RankStreams::on_readable(size_t rank, io::Output stream) {
  if (credit_ > 0 || !station_.commander.met()) read(rank, stream);
}

void RankStreams::read_rest(size_t rank) {
  const RankProcess& process = station_.ranks[rank];
  for (const io::Output stream : {io::Output::kErr, io::Output::kOut, io::Output::kResult}) {
    for (int i = 0; i < kPipeReads && process.fd(stream) >= 0; ++i) read(rank, stream);
  }
}

void RankStreams::read(size_t rank, io::Output stream) {
  RankProcess& process = station_.ranks[rank];
  const int fd = process.fd(stream);
  if (fd < 0) return;
  const std::string_view bytes = process.read(stream, buffer_);
  if (process.fd(stream) < 0) {
    station_.loop.forget(fd);
    return station_.say(rank, OutputEnd{.stream = stream});
  }
  if (bytes.empty() || station_.course.is_fenced(rank)) return;
  credit_ -= static_cast<int64_t>(bytes.size());
  station_.say(rank, Output{.stream = stream, .bytes = std::string(bytes)});
}

void RankStreams::flush_input() {
  for (size_t rank = 0; rank < station_.ranks.size(); ++rank) {
    if (const size_t taken = station_.ranks[rank].flush_input(); taken > 0)
      station_.say(rank, Credit{.bytes = taken});
  }
}

void RankStreams::pause_or_resume() {
  // Nobody has to wait until there is a commander.
  if ((credit_ <= 0 && station_.commander.met()) == paused_) return;
  paused_ = !paused_;
  if (paused_) return station_.ranks.pause();
  station_.course.resume(monotonic_now());
  if (const Status status = station_.ranks.resume(); !status.ok())
    station_.say(Trouble{status.message()});
}

void RankStreams::renew_credit(size_t sent) {
  credit_ = static_cast<int64_t>(kOutputCredit) - static_cast<int64_t>(sent);
}

}  // namespace corro::agent
