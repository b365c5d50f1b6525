// A pipe, closed in programs that are executed.
#pragma once

#include "base/status.h"
#include "io/fd.h"

namespace corro::io {

struct Pipe {
  Fd read, write;
};

/// Opens a pipe; both ends block and are closed by exec.
[[nodiscard]] Result<Pipe> make_pipe();

}  // namespace corro::io
