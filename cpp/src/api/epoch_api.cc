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
using corro::wire::Notice;
using corro::wire::NoticeKind;
namespace runtime = corro::runtime;

namespace {

Status report(const Notice& notice) {
  // Once: other threads may set variables later.
  static const corro::Result<corro::Environment> kEnvironment = corro::read_environment();
  CORRO_TRY(kEnvironment.status());
  if (kEnvironment->member.empty() || kEnvironment->agent.empty())
    return {Code::kFailedPrecondition, "nobody hears: corro run has not started this process"};
  return corro::wire::report(kEnvironment->agent, kEnvironment->member, notice);
}

}  // namespace

extern "C" {

corro_code corro_epochs_create(corro_epochs** epochs, corro_error* error) {
  return guarded(error, [&]() -> Status {
    *epochs = nullptr;
    CORRO_ASSIGN(const corro::Environment environment, corro::read_environment());
    if (!environment.elastic || environment.member.empty() || environment.agent.empty()) {
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

corro_code corro_report_checkpoint(uint64_t step, const char* path, corro_error* error) {
  return guarded(
      error, [&] { return report({.kind = NoticeKind::kCheckpoint, .step = step, .text = path}); });
}

corro_code corro_report_plan(const char* name, corro_error* error) {
  return guarded(error, [&]() -> Status {
    const std::string_view text = name;
    if (text.empty() || text.size() > kMaxPlanName)
      return {Code::kInvalidArgument, "the name of a plan has 1 to 63 bytes"};
    return report({.kind = NoticeKind::kPlan, .text = std::string(text)});
  });
}

corro_code corro_report_training(uint64_t step, const char* text, corro_error* error) {
  return guarded(
      error, [&] { return report({.kind = NoticeKind::kTraining, .step = step, .text = text}); });
}

corro_code corro_report_decisions(const char* json, corro_error* error) {
  return guarded(error, [&] { return report({.kind = NoticeKind::kDecisions, .text = json}); });
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
