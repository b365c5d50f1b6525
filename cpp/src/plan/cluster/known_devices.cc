#include "plan/cluster/known_devices.h"

namespace corro::plan {
namespace {

constexpr KnownDevice kDevices[] = {
    {"v100-16gb", 16, 900, 15.7, 125, 0, "NVIDIA V100 data sheet, SXM2"},
    {"v100-32gb", 32, 900, 15.7, 125, 0, "NVIDIA V100 data sheet, SXM2"},
    {"t4", 16, 320, 8.1, 65, 0, "NVIDIA T4 data sheet"},
    {"a10", 24, 600, 31.2, 125, 125, "NVIDIA A10 data sheet"},
    {"a100-40gb", 40, 1555, 19.5, 312, 312, "NVIDIA A100 data sheet, SXM4"},
    {"a100-80gb", 80, 2039, 19.5, 312, 312, "NVIDIA A100 data sheet, SXM4"},
    {"l4", 24, 300, 30.3, 121, 121, "NVIDIA L4 data sheet, half of its sparse peaks"},
    {"rtx4090", 24, 1008, 82.6, 165.2, 165.2, "NVIDIA Ada architecture paper, f32 accumulation"},
    {"h100-80gb", 80, 3350, 67, 989.4, 989.4, "NVIDIA H100 data sheet, SXM, half of sparse peaks"},
    {"h200", 141, 4800, 67, 989.4, 989.4, "NVIDIA H200 data sheet, SXM, half of sparse peaks"},
    {"b200", 180, 8000, 75, 2250, 2250, "NVIDIA HGX B200 data sheet, an eighth, half of sparse"},
    {"gb200", 186, 8000, 80, 2500, 2500, "NVIDIA GB200 NVL72 data sheet, a 72nd, half of sparse"},
    {"cpu-core", 4, 10, 0.08, 0, 0,
     "AVX2 at 2.5 GHz: two multiply-adds of 8 f32 a cycle; its memory is a guess"},
};

}  // namespace

DeviceType KnownDevice::type() const {
  constexpr double kGiga = 1e9;
  constexpr double kTera = 1e12;
  DeviceType device{.name = std::string(name),
                    .memory = memory_gb * kGiga,
                    .memory_bandwidth = memory_gb_per_s * kGiga};
  device.peak[static_cast<size_t>(DType::kF32)] = f32_tflops * kTera;
  device.peak[static_cast<size_t>(DType::kF16)] = f16_tflops * kTera;
  device.peak[static_cast<size_t>(DType::kBF16)] = bf16_tflops * kTera;
  return device;
}

std::span<const KnownDevice> known_devices() { return kDevices; }

std::optional<DeviceType> find_known_device(std::string_view name) {
  for (const KnownDevice& known : kDevices) {
    if (known.name == name) return known.type();
  }
  return {};
}

}  // namespace corro::plan
