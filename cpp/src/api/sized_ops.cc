#include "api/sized_ops.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "api/handles.h"

namespace corro::api {
namespace {

using collective::OpRequest;

/// One operation: its request, and the rows that go and come.
struct Sized {
  OpRequest request;
  uint64_t row = 1;            ///< Elements of one.
  std::vector<uint64_t> sent;  ///< To each rank; one number that all get.
  std::vector<uint64_t> come;  ///< From each rank.
  void* (*allocate)(void* context, const uint64_t* rows) = nullptr;
  void* context = nullptr;
};

/// What both stages share; each stage's work keeps it.
struct Stages {
  corro_group* group;
  std::vector<Sized> ops;
  std::shared_ptr<runtime::WorkState> whole;
  bool hurry = false;  ///< The caller blocks until they are over.

  void finish(const Status& status) const {
    for (size_t i = 0; i < ops.size(); ++i) whole->finish_one(status);
  }
};

Status check(const corro_op& op, const OpRequest& request) {
  if (request.kind != OpKind::kAllgather && request.kind != OpKind::kAlltoall)
    return {Code::kInvalidArgument, fmt::format("{} takes no allocate", name_of(request.kind))};
  if (op.output != nullptr || op.counts != nullptr)
    return {Code::kInvalidArgument, "with allocate, output and counts are NULL"};
  if ((request.kind == OpKind::kAlltoall) != (op.send_counts != nullptr))
    return {Code::kInvalidArgument, "with allocate, alltoall alone needs send_counts"};
  return {};
}

std::byte* bytes_of(std::vector<uint64_t>& numbers) {
  return reinterpret_cast<std::byte*>(numbers.data());
}

OpRequest tell_sizes(Sized& op) {
  return {.kind = op.request.kind,
          .dtype = DType::kI64,
          .input = bytes_of(op.sent),
          .output = bytes_of(op.come),
          .count = 1,
          .timeout = op.request.timeout,
          .name = op.request.name + ".sizes"};
}

std::vector<uint64_t> times(const std::vector<uint64_t>& rows, uint64_t row) {
  std::vector<uint64_t> counts(rows);
  for (uint64_t& count : counts) count *= row;
  return counts;
}

Status make_output(Sized& op) {
  OpRequest& request = op.request;
  request.output = static_cast<std::byte*>(op.allocate(op.context, op.come.data()));
  request.counts = times(op.come, op.row);
  if (request.kind == OpKind::kAlltoall) request.send_counts = times(op.sent, op.row);
  if (request.kind == OpKind::kAllgather) request.count = op.sent[0] * op.row;
  const bool needed = std::ranges::any_of(request.counts, [](uint64_t n) { return n > 0; });
  if (request.output != nullptr || !needed) return {};
  return {Code::kResourceExhausted, fmt::format("\"{}\": no memory for what comes", request.name)};
}

void begin_second(const std::shared_ptr<Stages>& stages) {
  std::vector<OpRequest> requests;
  for (Sized& op : stages->ops) {
    if (const Status made = make_output(op); !made.ok()) return stages->finish(made);
    requests.push_back(op.request);
  }
  auto second = std::make_shared<runtime::WorkState>(std::move(requests));
  second->named = true;
  second->hurry = stages->hurry;
  second->then = [stages](const Status& status) { stages->finish(status); };
  stages->group->engine->driver().submit_next(*stages->group->group, std::move(second));
}

using Requests = std::vector<OpRequest>;

Result<std::shared_ptr<Stages>> read(corro_group* group, const corro_op* ops, Requests requests) {
  const auto ranks = static_cast<size_t>(group->group->facts().size());
  auto stages = std::make_shared<Stages>();
  stages->group = group;
  stages->whole = std::make_shared<runtime::WorkState>(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    corro_op op;
    CORRO_TRY(read_struct(ops + i, op));
    CORRO_TRY(check(op, requests[i]));
    Sized& sized = stages->ops.emplace_back();
    for (int32_t dim = 0; op.dims != nullptr && dim < op.ndim; ++dim) sized.row *= op.dims[dim];
    if (op.row != 0) sized.row = op.row;
    sized.sent = requests[i].kind == OpKind::kAlltoall ? std::exchange(requests[i].send_counts, {})
                                                       : std::vector{op.count};
    sized.come.resize(ranks);
    sized.allocate = op.allocate;
    sized.context = op.allocate_context;
    sized.request = std::move(requests[i]);
  }
  return stages;
}

/// The first stage, which begins the second one.
std::shared_ptr<runtime::WorkState> make_first(const std::shared_ptr<Stages>& stages) {
  Requests sizes;
  for (Sized& op : stages->ops) sizes.push_back(tell_sizes(op));
  auto first = std::make_shared<runtime::WorkState>(std::move(sizes));
  first->named = true;
  first->hurry = stages->hurry;
  first->then = [stages](const Status& status) {
    if (status.ok()) return begin_second(stages);
    stages->finish(status);
  };
  return first;
}

}  // namespace

Result<std::shared_ptr<runtime::WorkState>> submit_sized(corro_group* group, const corro_op* ops,
                                                         Requests requests) {
  CORRO_ASSIGN(const auto stages, read(group, ops, std::move(requests)));
  group->engine->driver().submit(*group->group, make_first(stages));
  return stages->whole;
}

Result<std::shared_ptr<runtime::WorkState>> run_sized(corro_group* group, const corro_op* ops,
                                                      Requests requests) {
  CORRO_ASSIGN(const auto stages, read(group, ops, std::move(requests)));
  stages->hurry = true;
  group->engine->driver().try_run(*group->group, make_first(stages), *stages->whole);
  return stages->whole;
}

}  // namespace corro::api
