// The C ABI of membership epochs over runtime::EpochLink. No logic: convert, check, catch.
#include <corro/corro.h>

#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "api/handles.h"
#include "base/env.h"

using corro::Code;
using corro::Duration;
using corro::Status;
using corro::api::copy_text;
using corro::api::guarded;
using corro::api::read_struct;
using corro::wire::kMaxPlanName;
using corro::wire::NoticeKind;
namespace runtime = corro::runtime;

extern "C" {

corro_code corro_epochs_create(corro_epochs** epochs, corro_error* error) {
  return guarded(error, [&]() -> Status {
    *epochs = nullptr;
    CORRO_ASSIGN(const corro::Environment environment, corro::read_environment());
    if (environment.member.empty() || environment.agent.empty()) {
      return {Code::kFailedPrecondition,
              "this job is not elastic: start it with corro run --min-np N"};
    }
    CORRO_ASSIGN(auto link, runtime::EpochLink::connect(environment.agent, environment.member,
                                                        environment.joins));
    *epochs = new corro_epochs{std::move(link)};
    return {};
  });
}

void corro_epochs_destroy(corro_epochs* epochs) { delete epochs; }

uint32_t corro_epochs_prepared(corro_epochs* epochs) { return epochs->link->prepared(); }

size_t corro_epochs_why(corro_epochs* epochs, char* text, size_t size) {
  return copy_text(text, size, epochs->link->why());
}

corro_code corro_epochs_leave(corro_epochs* epochs, corro_error* error) {
  return guarded(error, [&] { return epochs->link->leave(); });
}

corro_code corro_epochs_report_checkpoint(corro_epochs* epochs, uint64_t step, const char* path,
                                          corro_error* error) {
  return guarded(error, [&] {
    return epochs->link->report({.kind = NoticeKind::kCheckpoint, .step = step, .text = path});
  });
}

corro_code corro_epochs_report_plan(corro_epochs* epochs, const char* name, corro_error* error) {
  return guarded(error, [&]() -> Status {
    const std::string_view text = name;
    if (text.empty() || text.size() > kMaxPlanName)
      return {Code::kInvalidArgument, "the name of a plan has 1 to 63 bytes"};
    return epochs->link->report({.kind = NoticeKind::kPlan, .text = std::string(text)});
  });
}

corro_code corro_epochs_report_training(corro_epochs* epochs, uint64_t step, const char* text,
                                        corro_error* error) {
  return guarded(error, [&] {
    return epochs->link->report({.kind = NoticeKind::kTraining, .step = step, .text = text});
  });
}

corro_code corro_epochs_next(corro_epochs* epochs, uint64_t steps, int32_t lost, int64_t timeout_ns,
                             int (*interrupted)(void* context), void* context, corro_epoch* next,
                             corro_error* error) {
  return guarded(error, [&]() -> Status {
    corro_epoch found;
    CORRO_TRY(read_struct(next, found));
    const auto asked = [&] { return interrupted != nullptr && interrupted(context) != 0; };
    const corro::Time deadline =
        timeout_ns < 0 ? corro::Time::never() : corro::monotonic_now() + Duration(timeout_ns);
    CORRO_ASSIGN(const runtime::EpochPlace begun,
                 epochs->link->next({.steps = steps, .lost = lost}, deadline, asked));
    found = {.struct_size = next->struct_size,
             .epoch = begun.epoch,
             .rank = begun.rank,
             .size = begun.size,
             .last = begun.last ? 1 : 0};
    std::memcpy(next, &found, next->struct_size);
    return {};
  });
}

}  // extern "C"
