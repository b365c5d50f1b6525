// table_restore: how long a table's snapshot takes to be read.
//
//   table_restore FOLDER ROWS ROUNDS
//
// A table of ROWS rows of dim 16 with SGD (64 bytes a row) is saved in FOLDER, which keeps it, and
// read ROUNDS times, in this process, as a server reads it. One JSON line a round: million rows a
// second by the clock, and of processor time of all threads.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <numeric>
#include <string>
#include <vector>

#include "table/local_table.h"
#include "table/service/disk_snapshots.h"
#include "table/service/snapshot_store.h"

namespace {

namespace table = corro::table;

[[noreturn]] void fail(const corro::Status& status) {
  std::fprintf(stderr, "table_restore: %s\n", std::string(status.message()).c_str());
  std::exit(1);
}

const table::TableSpec kSpec{.name = "t", .dim = 16};

void save(const std::string& folder, uint64_t rows) {
  constexpr uint64_t kCall = 65536;
  auto filled = table::LocalTable::create(kSpec);
  if (!filled.ok()) fail(filled.status());
  const std::vector<float> gradients(kCall * kSpec.dim, 1.0F);
  std::vector<uint64_t> keys(kCall);
  for (uint64_t first = 0; first < rows; first += kCall) {
    std::iota(keys.begin(), keys.end(), first);
    const auto status = (*filled)->push(keys, gradients, first / kCall + 1);
    if (!status.ok()) fail(status);
  }
  const auto status = table::save_local(folder, **filled, 1, 2);
  if (!status.ok()) fail(status);
}

void restore(const std::string& folder) {
  const auto begin = std::chrono::steady_clock::now();
  const std::clock_t cpu = std::clock();
  table::PageQueue queue;
  const auto loaded =
      table::load_rows(folder, 1, {.spec = kSpec, .shards = table::ShardSet().set()}, queue);
  if (!loaded.ok()) fail(loaded.status());
  const auto used = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  const auto rows = static_cast<double>(loaded->rows->stats().rows);
  std::printf(R"({"rows": %.0f, "wall_s": %.3f, "cpu_s": %.3f, "mrows_per_cpu_s": %.3f, )"
              R"("bytes_per_row": %.1f})"
              "\n",
              rows, wall.count(), used, rows / used / 1e6,
              static_cast<double>(loaded->rows->stats().bytes) / rows);
  (void)std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: table_restore FOLDER ROWS ROUNDS\n");
    return 2;
  }
  save(argv[1], std::strtoull(argv[2], nullptr, 10));
  for (int round = std::atoi(argv[3]); round > 0; --round) restore(argv[1]);
  return 0;
}
