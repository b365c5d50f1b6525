#include "plan/search/shapes.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace corro::plan {
namespace {

/// Beyond, pipelines of single layers and micro-batches of thousands are never best.
constexpr uint32_t kMostMicroBatch = 1024;
constexpr uint32_t kMostContext = 32;
constexpr uint32_t kLeastTokensOfContext = 1024;
constexpr uint64_t kBatchTokens = 4U << 20U;
constexpr uint64_t kDeviceTokens = 32768;
constexpr uint32_t kChunks[] = {1, 2, 3, 4, 6, 8};

bool same_hosts(const HostGroup& a, const HostGroup& b) {
  return a.type == b.type && a.devices == b.devices && a.link == b.link && a.network == b.network &&
         a.to_host_memory == b.to_host_memory && a.host_memory == b.host_memory;
}

Link network_of(const Cluster& cluster, uint32_t first_host, uint32_t hosts, Extent extent) {
  if (hosts < 2) return cluster.group_of(first_host).network;
  // Every pair where a matrix was measured; behind switches neighbours say it.
  const uint32_t last = first_host + hosts;
  Link link = cluster.link_between_hosts(first_host, first_host + 1);
  for (uint32_t a = first_host; a < last; ++a) {
    const uint32_t end = cluster.matrix.empty() ? std::min(a + 2, last) : last;
    for (uint32_t b = a + 1; b < end; ++b) {
      const Link between = cluster.link_between_hosts(a, b);
      const bool takes = extent == Extent::kWidest ? between.bandwidth > link.bandwidth
                                                   : between.bandwidth < link.bandwidth;
      if (takes) link = between;
    }
  }
  return link;
}

std::vector<uint32_t> divisors(uint32_t n) {
  std::vector<uint32_t> result;
  for (uint32_t d = 1; d <= n; ++d) {
    if (n % d == 0) result.push_back(d);
  }
  return result;
}

}  // namespace

DType dtype_of(const Request& request, const std::vector<Pool>& pools) {
  if (request.pins.dtype) return *request.pins.dtype;
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    const bool all = std::ranges::all_of(pools, [&](const Pool& pool) {
      return pool.machine.device.peak[static_cast<size_t>(dtype)] > 0;
    });
    if (all) return dtype;
  }
  return request.model.dtype;
}

namespace {

/// Counts off all families, the outer degrees first.
class Enumeration {
 public:
  Enumeration(const Request& request, const std::vector<Pool>& pools)
      : request_(request),
        pins_(request.pins),
        batch_(batch_of(request)),
        layers_(layer_count(request.model)),
        batch_divisors_(divisors(batch_)) {
    for (const Pool& pool : pools) {
      devices_ += pool.devices;
      host_ = std::max(host_, pool.machine.host.devices);
    }
    for (const LayerType& type : request.model.types) {
      experts_ = std::max(experts_, type.experts);
      for (const Operator& op : type.operators) {
        if (op.kind == OperatorKind::kMatmul) ways_ = std::max(ways_, op.most_ways);
        if (op.kind == OperatorKind::kAttention) heads_.push_back(op.most_ways);
      }
    }
    for (const LayerRun& run : request.model.layers) blocks_ = std::max(blocks_, run.count);
    base_.dtype = dtype_of(request, pools);
    base_.gradient_dtype = pins_.gradient_dtype.value_or(DType::kF32);
    base_.overlap = pins_.overlap.value_or(true);
    base_.bucket = pins_.bucket.value_or(0);
  }

  std::vector<JobShape> run() {
    const uint32_t most_tensor = std::min(std::max(host_, 8U), ways_);
    each(pins_.tensor, powers(most_tensor), [&](uint32_t t) {
      if (!heads_divide(t)) return;
      base_.tensor = t;
      each(pins_.context, contexts(), [&](uint32_t c) {
        if (!sequence_divides(c)) return;
        base_.context = c;
        const uint32_t most = std::min(layers_, devices_ / std::max(1U, t * c));
        each(pins_.pipeline, range(most), [&](uint32_t p) { add_pipelines(p); });
      });
    });
    return std::move(families_);
  }

 private:
  template <typename Visit>
  static void each(const std::optional<uint32_t>& pin, const std::vector<uint32_t>& values,
                   Visit&& visit) {
    if (pin) return visit(*pin);
    for (const uint32_t value : values) visit(value);
  }
  static std::vector<uint32_t> range(uint32_t most) {
    std::vector<uint32_t> values;
    for (uint32_t i = 1; i <= most; ++i) values.push_back(i);
    return values;
  }
  static std::vector<uint32_t> powers(uint32_t most) {
    std::vector<uint32_t> values;
    for (uint32_t i = 1; i <= most; i *= 2) values.push_back(i);
    return values;
  }
  [[nodiscard]] std::vector<uint32_t> contexts() const {
    const uint32_t sequence = request_.model.sequence;
    return powers(std::clamp(sequence / kLeastTokensOfContext / 4, 1U, kMostContext));
  }

  // Megatron's ranks all have as many heads, and two chunks of a sequence as long.
  [[nodiscard]] bool heads_divide(uint32_t t) const {
    return request_.trainer != Trainer::kMegatron ||
           std::ranges::all_of(heads_, [&](uint32_t n) { return n < t || n % t == 0; });
  }
  [[nodiscard]] bool sequence_divides(uint32_t c) const {
    return request_.trainer != Trainer::kMegatron || c == 1 ||
           request_.model.sequence % (2 * uint64_t{c}) == 0;
  }

  void add_pipelines(uint32_t p) {
    base_.pipeline = p;
    const uint64_t cut = uint64_t{base_.tensor} * base_.context * p;
    if (cut > devices_ || p > layers_) return;
    const auto most = static_cast<uint32_t>(devices_ / cut);
    // Megatron's ranks all have as many samples.
    const bool even_alone = request_.trainer == Trainer::kMegatron;
    if (pins_.data) {
      const bool can = !even_alone || batch_ % *pins_.data == 0;
      if (*pins_.data <= most && can) add_data(*pins_.data);
      return;
    }
    // The fewest ranks that share the batch as well as the most do, if unevenly.
    const uint32_t share = (batch_ + most - 1) / most;
    const uint32_t uneven = (batch_ + share - 1) / share;
    if (batch_ % uneven != 0 && !even_alone) add_data(uneven);
    // Fewer ranks use fewer devices, which is cheaper, and faster where links are slow.
    for (auto d = batch_divisors_.rbegin(); d != batch_divisors_.rend(); ++d) {
      if (*d <= most) add_data(*d);
    }
  }

  void add_data(uint32_t d) {
    base_.data = d;
    std::vector<uint32_t> experts{1};
    for (uint32_t e = 2; e <= std::min(experts_, d); ++e) {
      if (experts_ % e == 0 && d % e == 0) experts.push_back(e);
    }
    each(pins_.expert, experts, [&](uint32_t e) {
      if (d % e != 0 || std::max(experts_, 1U) % e != 0) return;
      base_.expert = e;
      const uint32_t samples = (batch_ + d - 1) / d;
      each(pins_.micro_batch, divisors(samples), [&](uint32_t b) {
        if (samples % b != 0 || (b > kMostMicroBatch && !pins_.micro_batch)) return;
        base_.micro_batch = b;
        base_.micro_batches = samples / b;
        add_chunks();
      });
    });
  }

  void add_chunks() {
    const uint32_t p = base_.pipeline;
    const bool interleaves =
        request_.trainer == Trainer::kMegatron || pins_.schedule == Schedule::kInterleaved;
    const auto chunks = interleaves ? std::vector(std::begin(kChunks), std::end(kChunks))
                                    : std::vector<uint32_t>{1};
    each(pins_.chunks, chunks, [&](uint32_t v) {
      const bool even = blocks_ % (uint64_t{p} * v) == 0 && base_.micro_batches % p == 0;
      const bool can = v == 1 || (p > 1 && even);
      if (!can) return;
      base_.chunks = v;
      const bool sequence = base_.tensor > 1 && request_.model.sequence > 0;
      if (!sequence && pins_.sequence_parallel == true) return;
      base_.sequence_parallel = sequence && pins_.sequence_parallel.value_or(true);
      families_.push_back(base_);
    });
  }

  const Request& request_;
  const Pins& pins_;
  uint32_t batch_;
  uint32_t layers_;
  uint32_t blocks_ = 0;  ///< Layers of the longest run: chunks are of as many each.
  std::vector<uint32_t> batch_divisors_;
  uint32_t devices_ = 0;
  uint32_t host_ = 1;
  uint32_t experts_ = 0;
  uint32_t ways_ = 1;
  std::vector<uint32_t> heads_;  ///< Of each kind of attention.
  JobShape base_;
  std::vector<JobShape> families_;
};

/// Whether it can be on a pipeline of these. GPipe holds more than 1F1B and is no faster: by pin
/// alone.
bool can_be(Schedule schedule, const JobShape& shape, const Request& request) {
  const std::optional<Schedule>& pin = request.pins.schedule;
  if (pin && *pin != schedule) return false;
  switch (schedule) {
    case Schedule::kOneFOneB:
      return shape.chunks == 1;
    case Schedule::kInterleaved:
      return shape.chunks > 1;
    case Schedule::kGPipe:
      return shape.chunks == 1 && pin.has_value();
    case Schedule::kZeroBubble:
      return shape.chunks == 1 && shape.pipeline > 1 && request.trainer == Trainer::kCorro;
  }
  return false;
}

}  // namespace

std::vector<Pool> pools_of(const Request& request, Extent extent) {
  const Cluster& cluster = request.cluster;
  std::vector<Pool> pools;
  uint32_t device = 0;
  uint32_t host = 0;
  uint32_t first_host = 0;
  for (size_t g = 0; g < cluster.hosts.size(); ++g) {
    const HostGroup& group = cluster.hosts[g];
    const bool joins = g > 0 && same_hosts(cluster.hosts[g - 1], group);
    if (!joins) {
      first_host = host;
      const DeviceType& type = cluster.types[group.type];
      const bool measured = request.profile != nullptr && request.profile->device == type.name;
      pools.push_back({.type = group.type,
                       .first_device = device,
                       .machine = {.device = type,
                                   .host = group,
                                   .calibration = request.calibration,
                                   .profile = measured ? request.profile : nullptr}});
    }
    host += group.count;
    device += group.count * group.devices;
    Pool& pool = pools.back();
    pool.devices += group.count * group.devices;
    pool.machine.between_hosts = network_of(cluster, first_host, host - first_host, extent);
  }
  return pools;
}

uint32_t batch_of(const Request& request) {
  if (request.global_batch != 0) return request.global_batch;
  const uint32_t sequence = request.model.sequence;
  const uint64_t devices = request.cluster.device_count();
  if (sequence == 0) return static_cast<uint32_t>(std::min<uint64_t>(32 * devices, 4096));
  const uint64_t tokens = std::min<uint64_t>(devices * kDeviceTokens, kBatchTokens);
  return static_cast<uint32_t>(std::max<uint64_t>({tokens / sequence, devices, 1}));
}

ShapeSpace::ShapeSpace(const Request& request, const std::vector<Pool>& pools)
    : request_(request),
      can_offload_(std::ranges::any_of(
          pools, [](const Pool& pool) { return pool.machine.host.to_host_memory.bandwidth > 0; })),
      families_(Enumeration(request, pools).run()) {
  for (const JobShape& family : families_) {
    each_of(family, [this](const JobShape&) { ++size_; });
  }
}

bool ShapeSpace::may_offload(Offload offload, const JobShape& shape) const {
  const std::optional<Offload>& pin = request_.pins.offload;
  if (pin && *pin != offload) return false;
  if (offload != Offload::kOff && !can_offload_) return false;
  // Megatron moves the optimizer alone.
  const bool has_it = request_.trainer == Trainer::kCorro || offload <= Offload::kOptimizer || pin;
  return has_it && shape.can_offload(offload);
}

template <typename Visit>
void ShapeSpace::each_of(const JobShape& family, const Visit& visit) const {
  const Pins& pins = request_.pins;
  const bool alone = family.data * family.context == 1;
  const uint32_t most_sharded = pins.zero.value_or(alone ? 0 : 3);
  JobShape shape = family;
  for (const Schedule schedule :
       {Schedule::kOneFOneB, Schedule::kInterleaved, Schedule::kGPipe, Schedule::kZeroBubble}) {
    if (!can_be(schedule, family, request_)) continue;
    shape.schedule = schedule;
    for (shape.zero = pins.zero.value_or(0); shape.zero <= most_sharded; ++shape.zero) {
      for (const Offload offload :
           {Offload::kOff, Offload::kOptimizer, Offload::kGradients, Offload::kWeights}) {
        if (!may_offload(offload, shape)) continue;
        shape.offload = offload;
        visit(shape);
      }
    }
  }
}

std::vector<JobShape> ShapeSpace::members(const JobShape& family) const {
  std::vector<JobShape> shapes;
  each_of(family, [&](const JobShape& shape) { shapes.push_back(shape); });
  return shapes;
}

std::vector<JobShape> shapes_of(const Request& request, const std::vector<Pool>& pools) {
  const ShapeSpace space(request, pools);
  std::vector<JobShape> shapes;
  for (const JobShape& family : space.families()) {
    for (const JobShape& shape : space.members(family)) shapes.push_back(shape);
  }
  return shapes;
}

}  // namespace corro::plan
