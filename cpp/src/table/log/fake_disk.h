// A disk of tests, in memory: it fails when it is told to.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "table/log/disk.h"

namespace corro::table {

class FakeDisk final : public Disk {
 public:
  void read(std::span<const Read> reads, const Done& done) override {
    for (const Read& read : reads) done(read, read_one(read));
  }
  Status write(uint64_t offset, std::span<const std::byte> from) override {
    ++write_count;
    if (fails_writes) return {Code::kResourceExhausted, "fake: Input/output error"};
    const auto at = static_cast<size_t>(offset);
    bytes.resize(std::max(bytes.size(), at + from.size()));
    std::memcpy(bytes.data() + at, from.data(), from.size());
    return {};
  }
  Status reserve(uint64_t offset, uint64_t count) override {
    uint64_t sum = count;
    for (const auto& [at, length] : reserved) sum += at == offset ? 0 : length;
    if (sum > most_bytes) return {Code::kResourceExhausted, "fake: the disk is full"};
    reserved[offset] = count;
    return {};
  }
  void release(uint64_t offset, uint64_t count) override {
    reserved.erase(offset);
    const auto at = static_cast<ptrdiff_t>(offset);
    if (bytes.size() >= offset + count)
      std::fill_n(bytes.begin() + at, static_cast<ptrdiff_t>(count), std::byte{0xee});
  }

  Status read_one(const Read& read) {
    ++read_count;
    if (fails_reads) return {Code::kDataLoss, "fake: Input/output error"};
    const auto offset = static_cast<size_t>(read.offset);
    if (offset + read.into.size() > bytes.size()) return {Code::kDataLoss, "fake: a short read"};
    std::memcpy(read.into.data(), bytes.data() + offset, read.into.size());
    return {};
  }

  std::vector<std::byte> bytes;
  std::map<uint64_t, uint64_t> reserved;  ///< Lengths by offset.
  uint64_t most_bytes = UINT64_MAX;
  bool fails_reads = false;
  bool fails_writes = false;
  size_t read_count = 0;
  size_t write_count = 0;
};

}  // namespace corro::table
