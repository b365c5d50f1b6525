#include "io/pipe.h"

#include <fcntl.h>

#include <cerrno>

namespace corro::io {

Result<Pipe> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return status_from_errno("pipe", errno);
  return Pipe{.read = Fd(ends[0]), .write = Fd(ends[1])};
}

}  // namespace corro::io
