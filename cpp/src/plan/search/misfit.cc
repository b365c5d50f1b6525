#include "plan/search/misfit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "plan/amounts.h"
#include "plan/search/shapes.h"
#include "plan/search/words.h"

namespace corro::plan {
namespace {

bool fits(const Request& request) {
  const std::vector<Pool> pools = pools_of(request);
  StageSearch search(request, pools);
  return std::ranges::any_of(smallest_shapes(request, pools, search), [&](const JobShape& shape) {
    return search.solve(shape).best.has_value();
  });
}

/// The least factor above 1, to a fiftieth, that is enough, and was tried; 0: `most` is not.
template <typename Enough>
double least_times(double most, const Enough& enough) {
  double few = 1;
  double many = std::min(1.02, most);
  while (!enough(many)) {
    if (many >= most) return 0;
    few = many;
    many = std::min(2 * many, most);
  }
  while (many > 1.02 * few) {
    const double middle = (few + many) / 2;
    (enough(middle) ? many : few) = middle;
  }
  return many;
}

/// So many devices of the cluster with more of its last hosts, the fewest found; 0: none were.
uint64_t devices_that_fit(const Request& request) {
  constexpr uint32_t kMostDevicesTried = 16384;
  const HostGroup& last = request.cluster.hosts.back();
  // How more hosts would be linked is not known of a matrix, nor of a machine alone.
  if (!request.cluster.matrix.empty() || last.network.bandwidth == 0) return 0;
  Request more = request;
  const auto fits_with = [&](uint32_t hosts) {
    more.cluster.hosts.back().count = hosts;
    return fits(more);
  };
  uint32_t few = last.count;
  for (const uint32_t times : {2U, 3U, 4U, 6U, 8U, 12U, 16U, 24U, 32U, 64U}) {
    uint32_t many = last.count * times;
    const uint64_t devices =
        request.cluster.device_count() + uint64_t{many - last.count} * last.devices;
    if (devices > kMostDevicesTried) return 0;
    if (!fits_with(many)) {
      few = many;
      continue;
    }
    while (many - few > 1) {
      const uint32_t middle = few + (many - few) / 2;
      (fits_with(middle) ? many : few) = middle;
    }
    more.cluster.hosts.back().count = many;
    return more.cluster.device_count();
  }
  return 0;
}

/// The least change of two kinds with which something fits, each tried: more of the last hosts, and
/// more memory of a device, if it has more.
std::string what_would_help(const Request& request, const std::vector<Pool>& pools,
                            StageSearch& search) {
  std::vector<std::string> changes;
  if (const uint64_t devices = devices_that_fit(request)) {
    changes.push_back(request.cluster.types.size() == 1
                          ? fmt::format("{} such devices", devices)
                          : fmt::format("{} devices, the others like those of hosts \"{}\"",
                                        devices, request.cluster.hosts.back().name));
  }
  const Pool& pool = pools[0];
  const double limit = search.limit_of(pool);
  const double most = pool.machine.device.memory / limit;
  const double times = least_times(most, [&](double each) {
    Request more = request;
    more.memory_limit = each * limit;
    return fits(more);
  });
  if (times > 0) changes.push_back(fmt::format("a limit of {}", bytes_text(times * limit)));
  if (pool.machine.host.to_host_memory.bandwidth == 0) {
    changes.emplace_back("offloading, if the cluster file gives to_host_memory and host_memory");
  }
  if (changes.empty()) return "a smaller model or devices with more memory would help";
  return fmt::format("{} would do", fmt::join(changes, ", or "));
}

/// An even cut would fit, but not with this cluster or these pins: the least limit with which one
/// does says by how much, and which stage is the fullest.
std::string why_no_cut(const Request& request, const JobShape& shape, double limit) {
  std::optional<Candidate> found;
  const auto fits = [&](double times) {
    Request more = request;
    more.memory_limit = times * limit;
    for (DeviceType& type : more.cluster.types)
      type.memory = std::max(type.memory, more.memory_limit);
    const std::vector<Pool> pools = pools_of(more);
    auto solved = StageSearch(more, pools).solve(shape);
    if (solved.best) found = std::move(solved.best);
    return solved.best.has_value();
  };
  std::string cannot =
      fmt::format("no cut into stages fits into {} of each device", bytes_text(limit));
  constexpr double kMostTimes = 16;
  if (pools_of(request).size() > 1 || least_times(kMostTimes, fits) == 0) return cannot;
  const auto fullest = std::ranges::max_element(
      found->stages, {}, [](const PlannedStage& stage) { return stage.estimate.memory.sum(); });
  return fmt::format("{}: stage {} lacks {}", cannot, fullest - found->stages.begin(),
                     bytes_text(fullest->estimate.memory.sum() - limit));
}

}  // namespace

std::vector<JobShape> smallest_shapes(const Request& request, const std::vector<Pool>& pools,
                                      StageSearch& search) {
  constexpr size_t kMost = 8;
  uint32_t zero = 0;
  bool offload = false;  // Any.
  uint32_t samples = UINT32_MAX;
  const std::vector<JobShape> shapes = shapes_of(request, pools);
  for (const JobShape& shape : shapes) {
    zero = std::max(zero, shape.zero);
    offload = offload || shape.offload != Offload::kOff;
    samples = std::min(samples, shape.micro_batch);
  }
  struct Found {
    bool lacks_on_hosts;
    double bytes;
    const JobShape* shape;
  };
  std::vector<Found> found;
  for (const JobShape& shape : shapes) {
    const bool alone = shape.data * shape.context == 1;
    const bool is_small = (shape.zero == zero || alone) &&
                          (shape.offload != Offload::kOff) == offload &&
                          shape.micro_batch == samples && shape.schedule == shapes.front().schedule;
    const double bytes = is_small ? search.least_memory(shape) : kInfeasible;
    if (bytes < kInfeasible) found.push_back({search.lacks_on_hosts(shape) > 0, bytes, &shape});
  }
  const auto end = found.begin() + static_cast<ptrdiff_t>(std::min(kMost, found.size()));
  std::ranges::partial_sort(
      found, end, {}, [](const Found& each) { return std::pair(each.lacks_on_hosts, each.bytes); });
  std::vector<JobShape> result;
  for (auto each = found.begin(); each != end; ++each) result.push_back(*each->shape);
  return result;
}

Status does_not_fit(const Request& request, const std::vector<Pool>& pools, StageSearch& search,
                    const std::vector<JobShape>& smallest) {
  if (smallest.empty()) {
    return {Code::kInvalidArgument,
            "model: no device of the cluster has matrix units for its dtype, or its experts do not "
            "divide; pin another dtype, or fewer experts"};
  }
  const double least = search.least_memory(smallest.front());
  const double limit = search.limit_of(pools[0]);
  const double on_hosts = search.lacks_on_hosts(smallest.front());
  const std::string what =
      on_hosts > 0 ? fmt::format("{} too much in host memory for each device", bytes_text(on_hosts))
      : least > limit && !request.pins.recompute
          ? fmt::format("{} too much on the fullest device, which may use {}",
                        bytes_text(least - limit), bytes_text(limit))
          : why_no_cut(request, smallest.front(), limit);
  const std::string recomputed = request.pins.recompute
                                     ? fmt::format("recompute {}", name_of(*request.pins.recompute))
                                     : "everything recomputed";
  return {Code::kResourceExhausted,
          fmt::format("does not fit: {}, even with {}, {}; {}", what, describe(smallest.front()),
                      recomputed, what_would_help(request, pools, search))};
}

}  // namespace corro::plan
