#include "launch/caller.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <span>

#include "agent/messages.h"
#include "base/bytes.h"
#include "diagnosis/exit_status.h"

namespace corro::launch {
namespace {

constexpr int32_t kEnd = -1;  ///< In the place of a rank.

std::string frame(int32_t rank, std::string_view bytes) {
  ByteWriter writer;
  writer.write(rank);
  writer.write_string(bytes);
  const Bytes written = writer.take();
  return {reinterpret_cast<const char*>(written.data()), written.size()};
}

/// All of it, blocking; nobody who reads has gone.
void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace

std::string frame_result(int rank, std::string_view bytes) { return frame(rank, bytes); }

std::string frame_end(const CallEnd& end) {
  nlohmann::json json = {{"code", static_cast<int>(end.code)},
                         {"exit", end.exit},
                         {"places", end.places},
                         {"text", end.text},
                         {"rank", end.failure ? end.failure->rank : -1},
                         {"host", end.failure ? end.failure->host : ""}};
  return frame(kEnd, json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

Result<Caller> Caller::create(int fd) {
  struct stat info{};
  if (fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode))
    return Status(Code::kInvalidArgument, "--corro-call is for corro.run() of Python alone");
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return Caller(io::Fd(fd));
}

Status Caller::read_exactly(char* into, size_t count) {
  while (count > 0) {
    const ssize_t read = recv(fd(), into, count, 0);
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) return {Code::kUnavailable, "the caller of corro.run() has gone"};
    into += read;
    count -= static_cast<size_t>(read);
  }
  return {};
}

Result<std::string> Caller::read_call() {
  if (!left_) {
    uint64_t length = 0;
    CORRO_TRY(read_exactly(reinterpret_cast<char*>(&length), sizeof(length)));
    left_ = length;
  }
  std::string piece(std::min<uint64_t>(*left_, agent::kCallPiece), '\0');
  CORRO_TRY(read_exactly(piece.data(), piece.size()));
  *left_ -= piece.size();
  return piece;
}

bool Caller::gone() const {
  char byte = 0;
  const ssize_t count = recv(fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
}

int refuse_job(const RunOptions& options, const Status& status) {
  const std::string text = "corro " + options.command_name + ": " + status.message();
  if (options.call >= 0) {
    write_all(options.call,
              frame_end({.code = status.code(), .exit = diagnosis::kUsageExit, .text = text}));
  } else {
    const std::string line = text + "\n";
    (void)!write(STDERR_FILENO, line.data(), line.size());
  }
  return diagnosis::kUsageExit;
}

}  // namespace corro::launch
