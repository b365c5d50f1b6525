#include "agent/machine.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "io/cgroup.h"
#include "io/fd.h"
#include "io/files.h"
#include "io/interfaces.h"
#include "io/memory.h"
#include "io/socket.h"

namespace corro::agent {
namespace {

/// The number at the beginning of a file's text.
std::optional<long> read_number(const std::string& path) {
  const std::string text = io::read_small_file(path);
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  return end == text.c_str() ? std::nullopt : std::optional(value);
}

std::vector<int> allowed_processors() {
  constexpr int kMaxProcessors = 8192;
  cpu_set_t* set = CPU_ALLOC(kMaxProcessors);
  const size_t bytes = CPU_ALLOC_SIZE(kMaxProcessors);
  std::vector<int> allowed;
  if (set != nullptr && sched_getaffinity(0, bytes, set) == 0) {
    for (int cpu = 0; cpu < kMaxProcessors; ++cpu) {
      if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set)) allowed.push_back(cpu);
    }
  }
  CPU_FREE(set);
  if (allowed.empty()) allowed.push_back(0);
  return allowed;
}

int numa_node_of(int cpu) {
  std::error_code error;
  const std::string folder = fmt::format("/sys/devices/system/cpu/cpu{}", cpu);
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("node") && name.size() > 4 && std::isdigit(name[4]) != 0) {
      return static_cast<int>(std::strtol(name.c_str() + 4, nullptr, 10));
    }
  }
  return 0;
}

std::vector<Processor> read_processors() {
  std::vector<Processor> processors;
  for (const int cpu : allowed_processors()) {
    const std::string topology = fmt::format("/sys/devices/system/cpu/cpu{}/topology/", cpu);
    // The list of siblings begins with the lowest: "0,32" or "0-1".
    const auto core = read_number(topology + "thread_siblings_list").value_or(cpu);
    const auto package = read_number(topology + "physical_package_id").value_or(0);
    processors.push_back(
        {cpu, static_cast<int>(core), static_cast<int>(package), numa_node_of(cpu)});
  }
  return processors;
}

int count_gpu_devices() {
  std::error_code error;
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", error)) {
    const std::string name = entry.path().filename();
    constexpr std::string_view kPrefix = "nvidia";
    if (name.starts_with(kPrefix) && name.size() > kPrefix.size() &&
        std::all_of(name.begin() + kPrefix.size(), name.end(),
                    [](unsigned char c) { return std::isdigit(c) != 0; })) {
      ++count;
    }
  }
  return count;
}

bool is_free(int port) {
  const auto address = io::SocketAddress::parse(fmt::format("127.0.0.1:{}", port));
  return address.ok() && io::listen_tcp(*address).ok();
}

}  // namespace

int visible_gpus(int devices, const Variables& environment) {
  const auto found = environment.find("CUDA_VISIBLE_DEVICES");
  if (found == environment.end()) return devices;
  // CUDA stops at the first entry that names no device; "-1" and "" hide all.
  std::istringstream entries(found->second);
  int visible = 0;
  for (std::string entry; visible < devices && std::getline(entries, entry, ',');) {
    if (entry.empty() || entry.starts_with('-')) break;
    ++visible;
  }
  return visible;
}

Machine read_machine(const Variables& environment) {
  Machine machine;
  machine.processors = read_processors();
  std::set<int> cores;
  for (const Processor& processor : machine.processors) cores.insert(processor.core);
  machine.facts.cores = static_cast<int>(cores.size());
  machine.facts.cpu_quota = io::cpu_quota().value_or(0);
  machine.facts.gpus = visible_gpus(count_gpu_devices(), environment);
  if (const auto memory = io::tightest_memory_limit()) {
    machine.facts.memory_bytes = memory->limit - std::min(memory->limit, memory->used);
  }
  machine.host = io::host_name();
  return machine;
}

int find_free_port() {
  constexpr long kDefaultLow = 32768;
  constexpr long kWidth = 12000;
  constexpr int kTries = 64;
  const long low = read_number("/proc/sys/net/ipv4/ip_local_port_range").value_or(kDefaultLow);
  const long first = std::max(1024L, low - kWidth);
  for (int i = 0; i < kTries && first < low; ++i) {
    uint32_t random = 0;
    if (getrandom(&random, sizeof(random), 0) != sizeof(random)) break;
    const int port = static_cast<int>(first + static_cast<long>(random) % (low - first));
    if (is_free(port)) return port;
  }
  const auto any = io::SocketAddress::parse("127.0.0.1:0");
  if (!any.ok()) return 0;
  const auto listener = io::listen_tcp(*any);
  if (!listener.ok()) return 0;
  const auto here = io::local_address(listener->get());
  return here.ok() ? here->port() : 0;
}

}  // namespace corro::agent
