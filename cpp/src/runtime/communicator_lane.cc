#include "runtime/communicator_lane.h"

#include <algorithm>

#include <fmt/format.h>

namespace corro::runtime {
namespace {

/// The one of these channels that has memory, or null. An error if it is not the only one.
Result<const graph::ChannelSpec*> only_memory(const graph::Part& part,
                                              const std::vector<graph::ChannelId>& ends,
                                              const std::string& service, const char* side) {
  const graph::ChannelSpec* found = nullptr;
  for (const graph::ChannelId end : ends) {
    if (part.plan.channels[end].slot_bytes == 0) continue;
    if (found != nullptr) {
      return Status(Code::kInvalidArgument,
                    fmt::format("plan: service \"{}\" has several {} with memory on one rank; a "
                                "collective uses one",
                                service, side));
    }
    found = &part.plan.channels[end];
  }
  return found;
}

Status check_room(const graph::ServiceSpec& service, const graph::ChannelSpec* channel,
                  uint64_t bytes) {
  if (channel == nullptr || bytes <= channel->slot_bytes) return {};
  return {Code::kInvalidArgument,
          fmt::format(R"(plan: service "{}" needs {} bytes of channel "{}", whose slots have {})",
                      service.name, bytes, channel->name, channel->slot_bytes)};
}

}  // namespace

Result<collective::OpRequest> make_request(const graph::Plan& plan, const graph::Part& part,
                                           graph::ServiceId service, const GroupFacts& facts) {
  const graph::ServiceSpec& here = part.plan.services[service];
  const graph::ServiceSpec& whole = plan.services[part.services[service].number];
  const graph::OperationSpec& operation = *whole.operation;
  const auto& ranks = plan.lanes[whole.lane].ranks;
  const auto root = std::find(ranks.begin(), ranks.end(), operation.root) - ranks.begin();
  collective::OpRequest request{.kind = operation.kind,
                                .dtype = operation.dtype,
                                .reduce_op = operation.reduce_op,
                                .root = has_root(operation.kind) ? static_cast<int32_t>(root) : 0,
                                .count = operation.count,
                                .name = here.name};
  const std::string about = fmt::format("plan: service \"{}\"", here.name);
  if (const Status sizes = collective::validate_sizes(request, facts.rank, facts.size());
      !sizes.ok())
    return sizes.with_context(about);
  CORRO_ASSIGN(const auto* input, only_memory(part, here.inputs, here.name, "inputs"));
  CORRO_ASSIGN(const auto* output, only_memory(part, here.outputs, here.name, "outputs"));
  const collective::Shape shape(request, facts.rank, facts.size());
  const uint64_t element = size_of(request.dtype);
  const uint64_t reads = shape.contribution() * element;
  const uint64_t writes = shape.takes() ? shape.output_count() * element : 0;
  const bool in_place = input == nullptr || output == nullptr;
  const uint64_t both = std::max(reads, writes);
  CORRO_TRY(check_room(here, input, in_place ? both : reads));
  CORRO_TRY(check_room(here, output, in_place ? both : writes));
  if (both > 0 && input == nullptr && output == nullptr) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} needs {} bytes, but none of its channels on rank {} of its lane "
                              "has memory",
                              about, both, facts.rank));
  }
  return request;
}

void CommunicatorLane::add(graph::ServiceId service, collective::OpRequest request) {
  if (requests_.size() <= service) requests_.resize(service + 1);
  requests_[service] = std::move(request);
  if (records_ == nullptr) return;
  records_->set_operation(service, lane_->key(), requests_[service], obs::Phase::kExchange);
}

void CommunicatorLane::start(Time now, const graph::Work& work) {
  collective::OpRequest& request = requests_[work.firing.ticket.task];
  const auto memory = [](std::span<graph::Slot* const> slots) {
    const graph::Slot* const slot = with_memory(slots);
    return slot == nullptr ? nullptr : slot->data.data();
  };
  std::byte* input = memory(work.firing.inputs);
  std::byte* output = memory(work.firing.outputs);
  request.input = input == nullptr ? output : input;
  request.output = output == nullptr ? input : output;
  std::optional<obs::FlightRecorder::Handle> record;
  if (records_ != nullptr) record = records_->record_of(work.firing.ticket.task);
  lane_->fire(request, work.firing.ticket, now, record);
}

bool CommunicatorLane::poll(Time now) {
  return !failed_ && !lane_->flights().empty() && lane_->poll(now);
}

void CommunicatorLane::stop(const Status& cause, Time now) {
  const int32_t culprit = cause.detail() ? cause.detail()->rank : -1;
  lane_->fabric()->set_failed(cause.code(), culprit);
  lane_->fail(cause, now);
  lane_->close(cause);  // votes too
}

void CommunicatorLane::hear(MemberId from, const wire::Control& control) {
  const int32_t r = facts_.index_of(from);
  if (r >= 0) lane_->hear(r, control);
}

void CommunicatorLane::judge(MemberId from, uint64_t op, const SignatureBits& signature) {
  const int32_t r = facts_.index_of(from);
  if (r >= 0) lane_->judge(r, op, signature);
}

std::optional<GroupFailure> CommunicatorLane::check(Time now) {
  if (failed_) return std::nullopt;
  lane_->check(now);
  if (auto failure = lane_->take_failure()) {
    failed_ = true;
    failure->heard = !lane_->fabric()->set_failed(failure->cause.code(), failure->culprit);
    return failure;
  }
  // It was over here, and has failed elsewhere: what fired after it cannot be trusted.
  const Status error = lane_->take_next_error();
  if (error.ok()) return std::nullopt;
  return GroupFailure{error, error.detail() ? error.detail()->rank : -1};
}

std::optional<PlanLane::Rest> CommunicatorLane::take_rest() {
  return Rest{std::move(lane_->fabric()), facts_};
}

}  // namespace corro::runtime
