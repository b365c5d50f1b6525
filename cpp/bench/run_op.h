// One operation of corro's C ABI from start to end, as a program calls it.
#pragma once

#include <corro/corro.h>

namespace corro::bench {

inline corro_code run_op(corro_engine* engine, const corro_op& op, corro_error* error,
                         uint32_t flags = CORRO_NOW) {
  corro_work* work = nullptr;
  corro_code code = corro_submit(corro_engine_world(engine), &op, 1, flags, &work, error);
  if (work != nullptr) code = corro_work_wait(work, -1, error);
  corro_work_release(work);
  return code;
}

}  // namespace corro::bench
