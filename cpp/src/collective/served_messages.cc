#include "collective/served_messages.h"

#include <bit>

namespace corro::collective {
namespace {

constexpr int32_t kMostContributors = 1 << 20;

Status refuse(const char* what) {
  return {Code::kInvalidArgument, std::string("a message to an aggregator: ") + what};
}

}  // namespace

Bytes encode(const ServedGroup& group) {
  ByteWriter writer;
  writer.write(group.epoch);
  for (const int32_t number : {group.size, group.rank, group.aggregators, group.index})
    writer.write(number);
  return writer.take();
}

Result<ServedGroup> decode_served_group(BytesView bytes) {
  ByteReader reader(bytes);
  const auto epoch = reader.read<uint32_t>();
  const auto size = reader.read<int32_t>();
  const auto rank = reader.read<int32_t>();
  const auto aggregators = reader.read<int32_t>();
  const auto index = reader.read<int32_t>();
  if (!index || !reader.done()) return refuse("wrong size");
  const bool fits = *size >= 1 && *size <= kMostContributors && *rank >= 0 && *rank < *size &&
                    *aggregators >= 1 && *aggregators <= kMostAggregators && *index >= 0 &&
                    *index < *aggregators;
  if (!fits) return refuse("an impossible group");
  return ServedGroup{*epoch, *size, *rank, *aggregators, *index};
}

Bytes encode(const ServedCall& call) {
  ByteWriter writer;
  writer.write(call.lane.epoch);
  writer.write(call.lane.key);
  writer.write(call.op);
  writer.write(call.count);
  writer.write(call.shape);
  writer.write(std::bit_cast<uint64_t>(call.prescale));
  writer.write(std::bit_cast<uint64_t>(call.postscale));
  writer.write(call.absent);
  writer.write(static_cast<uint8_t>(call.dtype));
  writer.write(static_cast<uint8_t>(call.reduce_op));
  writer.write(static_cast<uint8_t>(call.folds_as));
  writer.write(uint8_t{0});
  return writer.take();
}

Result<ServedCall> decode_served_call(BytesView bytes) {
  ByteReader reader(bytes);
  ServedCall call;
  const auto epoch = reader.read<uint32_t>();
  const auto key = reader.read<uint64_t>();
  const auto op = reader.read<uint64_t>();
  const auto count = reader.read<uint64_t>();
  const auto shape = reader.read<uint64_t>();
  const auto prescale = reader.read<uint64_t>();
  const auto postscale = reader.read<uint64_t>();
  const auto absent = reader.read<int32_t>();
  const auto dtype = reader.read<uint8_t>();
  const auto reduce_op = reader.read<uint8_t>();
  const auto folds_as = reader.read<uint8_t>();
  const auto reserved = reader.read<uint8_t>();
  if (!reserved || !reader.done()) return refuse("wrong size");
  const bool by_rank = *folds_as == static_cast<uint8_t>(Algorithm::kTwoShot);
  const bool around = *folds_as == static_cast<uint8_t>(Algorithm::kRing);
  const bool fits = *count <= kMostElements && *absent >= 0 && *absent <= kMostContributors &&
                    *dtype < kDTypeCount && *reduce_op < kReduceOpCount &&
                    *reduce_op != static_cast<uint8_t>(ReduceOp::kAdasum) && (by_rank || around) &&
                    *reserved == 0;
  if (!fits) return refuse("an impossible operation");
  call = {.lane = {.epoch = *epoch, .key = *key},
          .op = *op,
          .count = *count,
          .shape = *shape,
          .prescale = std::bit_cast<double>(*prescale),
          .postscale = std::bit_cast<double>(*postscale),
          .absent = *absent,
          .dtype = static_cast<DType>(*dtype),
          .reduce_op = static_cast<ReduceOp>(*reduce_op),
          .folds_as = static_cast<Algorithm>(*folds_as)};
  if (around && folds_at_once(request_of(call, 0))) return refuse("an impossible operation");
  return call;
}

OpRequest request_of(const ServedCall& call, int32_t aggregators) {
  return {.kind = OpKind::kAllreduce,
          .dtype = call.dtype,
          .reduce_op = call.reduce_op,
          .count = call.count,
          .prescale = call.prescale,
          .postscale = call.postscale,
          .absent = call.absent + aggregators,
          .gives_identity = true,  // Contributions come scaled.
          .shape = call.shape};
}

}  // namespace corro::collective
