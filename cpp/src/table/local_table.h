// LocalTable: rows by key in this process's memory, and on its disk where a spec has a `spill`: a
// server's part of a table, or a whole one.
//
//   auto table = LocalTable::create({.name = "users", .dim = 16, .optimizer = {...}});
//   table->pull(keys, values);                 // a row for each key; makes none
//   table->push(keys, gradients, /*step=*/1);  // the optimizer changes, or makes, each key's row
//
// The same calls in the same order give the same bits on every processor, whichever instructions
// it has: servers that do the same pushes are replicas of each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "table/log/disk.h"
#include "table/types.h"

namespace corro::table {

/// Externally synchronized: pulls and pushes by one thread at a time.
class LocalTable {
 public:
  /// INVALID_ARGUMENT as check() says. Throws std::bad_alloc without memory, and so does push().
  /// With `spill`, FAILED_PRECONDITION or RESOURCE_EXHAUSTED if its folder cannot be used, and pulls
  /// and pushes block for the disk.
  [[nodiscard]] static Result<std::unique_ptr<LocalTable>> create(const TableSpec& spec);
  /// With rows beyond retention.most_bytes on this disk, in segments of so many bytes.
  [[nodiscard]] static Result<std::unique_ptr<LocalTable>> create(const TableSpec& spec,
                                                                  std::unique_ptr<Disk> disk,
                                                                  uint64_t segment_bytes);
  ~LocalTable();
  LocalTable(const LocalTable&) = delete;
  LocalTable& operator=(const LocalTable&) = delete;

  [[nodiscard]] const TableSpec& spec() const;

  /// Writes the row of each key: `values` is [keys.size(), dim] f32. A key without a row gives its
  /// initial values. Keys may repeat. DATA_LOSS: a row cannot be read from the disk.
  [[nodiscard]] Status pull(std::span<const uint64_t> keys, std::span<float> values) const;

  /// Changes the row of each key by its gradient: `gradients` is [keys.size(), dim] f32. Keys are
  /// unique: a caller that has some twice adds up their gradients first. `step` counts the table's
  /// pushes from 1; it seeds the rounding, and ages rows, also in a push of no keys. Rows stay
  /// finite: what overflows becomes the largest finite value. INVALID_ARGUMENT, before any row has
  /// changed, if a gradient is not finite: it names the key. RESOURCE_EXHAUSTED, also before,
  /// if there might be more than 2^31 rows. With `spill` also before: RESOURCE_EXHAUSTED if the
  /// index has no room in most_bytes, or the disk has none; DATA_LOSS if a row cannot be read.
  /// Meanwhile rows of this push that were on disk are in memory, beside most_bytes.
  [[nodiscard]] Status push(std::span<const uint64_t> keys, std::span<const float> gradients,
                            uint64_t step);

  /// From the next push on. > 0 and finite, else INVALID_ARGUMENT.
  [[nodiscard]] Status set_lr(float lr);

  [[nodiscard]] TableStats stats() const;
  /// How many of these keys have no row. Reads nothing from a disk.
  [[nodiscard]] size_t count_without_rows(std::span<const uint64_t> keys) const;

  // Copying rows to another table of the same spec, bit for bit: their bytes as they are kept, and
  // the step that touched them last. The table then goes on as this one, if its spec has neither
  // least_pushes nor, without `spill`, most_bytes: what they count is the whole table's, and stays
  // behind.

  /// The keys with a row of which `wanted` is true, ascending. Costs a look at each row's key.
  [[nodiscard]] std::vector<uint64_t> keys_with_rows(
      const std::function<bool(uint64_t)>& wanted) const;
  [[nodiscard]] bool has_row(uint64_t key) const;
  /// Bytes of a packed row.
  [[nodiscard]] size_t packed_bytes() const;
  /// Writes the rows of keys of keys_with_rows(), each once, to `into`: [keys.size(),
  /// packed_bytes()]. Reads those on disk many at a time, and leaves them there. Fails as pull().
  [[nodiscard]] Status pack(std::span<const uint64_t> keys, std::span<std::byte> into) const;
  /// Puts packed rows, [keys.size(), packed_bytes()], in the place of what these keys have, and
  /// ages rows as after `steps` pushes. Fails as push(), and before anything has changed.
  [[nodiscard]] Status unpack(std::span<const uint64_t> keys, std::span<const std::byte> rows,
                              uint64_t steps);
  /// Before many rows are unpacked: memory of the index for so many in all. What there is a budget for
  /// grows as rows come.
  void reserve(uint64_t rows);
  /// Forgets the rows of keys of which `wanted` is true: they have their initial values again.
  void forget(const std::function<bool(uint64_t)>& wanted);

 private:
  class Body;
  explicit LocalTable(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
};

}  // namespace corro::table
