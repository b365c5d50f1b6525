#include "api/handles.h"

namespace corro::api {

corro_code report(const Status& status, corro_error* error) {
  const auto code = static_cast<corro_code>(status.code());
  if (error == nullptr) return code;
  error->code = code;
  error->rank = -1;
  error->torn = 0;
  error->op[0] = error->phase[0] = error->message[0] = '\0';
  if (status.ok()) return code;
  copy_text(error->message, status.message());
  if (const auto& detail = status.detail()) {
    error->rank = detail->rank;
    error->torn = detail->torn ? 1 : 0;
    copy_text(error->op, detail->op);
    copy_text(error->phase, detail->phase);
  }
  return code;
}

Status check_alive(const corro_engine* engine) {
  if (engine == nullptr)
    return {Code::kFailedPrecondition, "corro is not initialized: call corro.init() first"};
  if (engine->driver().abandoned()) {
    return {Code::kFailedPrecondition,
            "corro cannot be used in a forked child: its connections belong to the parent process"};
  }
  return {};
}

Status check_group(const corro_group* group) {
  if (group == nullptr) return {Code::kInvalidArgument, "this rank is not a member of the group"};
  return check_alive(group->engine);
}

}  // namespace corro::api
