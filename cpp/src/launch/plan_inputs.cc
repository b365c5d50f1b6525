#include "launch/plan_inputs.h"

#include <fmt/format.h>

#include <array>
#include <ctime>

#include "io/random.h"

namespace corro::launch {
namespace {

std::string local_time() {
  const time_t now = time(nullptr);
  tm parts{};
  localtime_r(&now, &parts);
  std::array<char, 32> text{};
  strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &parts);
  return text.data();
}

}  // namespace

std::string random_job_id() {
  std::array<std::byte, sizeof(uint64_t)> bytes{};
  io::fill_random(bytes);
  return wire::to_hex(bytes);
}

PlanInputs inputs_from_here(const Variables& environment, const std::string& own_directory) {
  return {.environment = environment,
          .machine = agent::read_machine(environment),
          .files = real_files(),
          .own_directory = own_directory,
          .read_hostfile = read_hostfile,
          .job_id = random_job_id(),
          .time = local_time(),
          .master_port = agent::find_free_port()};
}

}  // namespace corro::launch
