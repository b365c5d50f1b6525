// table_tiers: pulls of rows that lie on disk, beside the disk's own random reads, by turns.
//
//   table_tiers FOLDER ROWS READS ROUNDS
//
// ROWS rows of dim 64 with Adagrad (512 bytes), of which memory has room for a sixteenth, are pulled
// in calls of 4096 random keys; each key is pulled once, so nearly each row is a read of its block.
// The disk reads as many random blocks of 4 KiB by the same Disk. One JSON line a round: reads a
// second by the clock, and processor time in microseconds a read.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "table/local_table.h"
#include "table/log/disk.h"

namespace {

using corro::table::Disk;
using corro::table::LocalTable;

constexpr size_t kCall = 4096;
constexpr uint32_t kDim = 64;
constexpr size_t kRowBytes = 512;

[[noreturn]] void fail(const corro::Status& status) {
  std::fprintf(stderr, "table_tiers: %s\n", std::string(status.message()).c_str());
  std::exit(1);
}

struct Figure {
  double per_second = 0;
  double cpu_us = 0;
};

/// `run` returns how many reads it has done.
template <typename Run>
Figure measure(const Run& run) {
  const auto begin = std::chrono::steady_clock::now();
  const std::clock_t cpu = std::clock();
  const auto reads = static_cast<double>(run());
  const auto used = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  return {reads / wall.count(), used / reads * 1e6};
}

std::unique_ptr<LocalTable> filled(const std::string& folder, uint64_t rows) {
  corro::table::TableSpec spec{.name = "t", .dim = kDim};
  spec.optimizer.kind = corro::table::OptimizerKind::kAdagrad;
  // The index, and a sixteenth of the rows.
  spec.retention.most_bytes = std::max<uint64_t>(rows * (25 + kRowBytes / 16), 1U << 20U);
  spec.retention.spill = folder;
  auto table = LocalTable::create(spec);
  if (!table.ok()) fail(table.status());
  std::vector<uint64_t> keys(kCall);
  const std::vector<float> gradients(kCall * kDim, 1);
  for (uint64_t first = 0; first < rows; first += kCall) {
    for (size_t i = 0; i < kCall; ++i) keys[i] = first + i;
    const auto status = (*table)->push(keys, gradients, first / kCall + 1);
    if (!status.ok()) fail(status);
  }
  return std::move(*table);
}

/// Pulls `reads` keys in the order of a bijection of the keys' numbers, from `first` on.
uint64_t pull(const LocalTable& table, uint64_t rows, uint64_t first, uint64_t reads) {
  const uint64_t before = table.stats().disk_reads;
  std::vector<uint64_t> keys(kCall);
  std::vector<float> values(kCall * kDim);
  for (uint64_t i = 0; i < reads; i += kCall) {
    for (size_t j = 0; j < kCall; ++j) keys[j] = (first + i + j) * 0x9e3779b97f4a7c15U % rows;
    const auto status = table.pull(keys, values);
    if (!status.ok()) fail(status);
  }
  return table.stats().disk_reads - before;
}

struct Blocks {
  explicit Blocks(size_t count)
      : memory(static_cast<std::byte*>(::operator new(
            count* corro::table::kDiskUnit, std::align_val_t{corro::table::kDiskUnit}))) {}
  ~Blocks() { ::operator delete(memory, std::align_val_t{corro::table::kDiskUnit}); }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;
  std::byte* memory;
};

uint64_t read_blocks(Disk& disk, uint64_t blocks, uint64_t reads, uint64_t seed) {
  constexpr size_t kUnit = corro::table::kDiskUnit;
  const Blocks into(kCall);
  std::mt19937_64 random(seed);
  std::vector<Disk::Read> all(kCall);
  for (uint64_t i = 0; i < reads; i += kCall) {
    for (size_t j = 0; j < kCall; ++j)
      all[j] = {.offset = random() % blocks * kUnit, .into = {into.memory + j * kUnit, kUnit}};
    const auto status = disk.read_all(all);
    if (!status.ok()) fail(status);
  }
  return reads / kCall * kCall;
}

std::unique_ptr<Disk> filled_disk(const std::string& folder, uint64_t blocks) {
  auto disk = corro::table::open_disk(folder);
  if (!disk.ok()) fail(disk.status());
  const Blocks zeros(256);
  std::fill_n(zeros.memory, 256 * corro::table::kDiskUnit, std::byte{1});
  for (uint64_t at = 0; at < blocks; at += 256) {
    const auto status =
        (*disk)->write(at * corro::table::kDiskUnit, {zeros.memory, 256 * corro::table::kDiskUnit});
    if (!status.ok()) fail(status);
  }
  return std::move(*disk);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const uint64_t rows = std::strtoull(argv[2], nullptr, 10);
  const uint64_t reads = std::strtoull(argv[3], nullptr, 10);
  const uint64_t rounds = std::strtoull(argv[4], nullptr, 10);
  const auto table = filled(argv[1], rows);
  const uint64_t blocks = rows * kRowBytes / corro::table::kDiskUnit;
  const auto disk = filled_disk(argv[1], blocks);
  for (uint64_t round = 0; round < rounds; ++round) {
    const Figure raw = measure([&] { return read_blocks(*disk, blocks, reads, round); });
    const Figure cold = measure([&] { return pull(*table, rows, round * reads, reads); });
    std::printf("{\"cold\": %.0f, \"cold_cpu_us\": %.2f, \"disk\": %.0f, \"disk_cpu_us\": %.2f}\n",
                cold.per_second, cold.cpu_us, raw.per_second, raw.cpu_us);
  }
}
