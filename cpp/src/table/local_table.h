// LocalTable: rows by key in this process's memory: a server's part of a table, or a whole one.
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
#include <memory>
#include <span>

#include "base/status.h"
#include "table/types.h"

namespace corro::table {

/// Externally synchronized: pulls and pushes by one thread at a time.
class LocalTable {
 public:
  /// INVALID_ARGUMENT as check() says. Throws std::bad_alloc without memory, and so does push().
  [[nodiscard]] static Result<std::unique_ptr<LocalTable>> create(const TableSpec& spec);
  ~LocalTable();
  LocalTable(const LocalTable&) = delete;
  LocalTable& operator=(const LocalTable&) = delete;

  [[nodiscard]] const TableSpec& spec() const;

  /// Writes the row of each key: `values` is [keys.size(), dim] f32. A key without a row gives its
  /// initial values. Keys may repeat.
  void pull(std::span<const uint64_t> keys, std::span<float> values) const;

  /// Changes the row of each key by its gradient: `gradients` is [keys.size(), dim] f32. Keys are
  /// unique: a caller that has some twice adds up their gradients first. `step` counts the table's
  /// pushes from 1; it seeds the rounding, and ages rows, also in a push of no keys. Rows stay
  /// finite: what overflows becomes the largest finite value. INVALID_ARGUMENT, before any row has
  /// changed, if a gradient is not finite: it names the key. RESOURCE_EXHAUSTED, also before,
  /// if there might be more than 2^31 rows.
  [[nodiscard]] Status push(std::span<const uint64_t> keys, std::span<const float> gradients,
                            uint64_t step);

  /// From the next push on. > 0 and finite, else INVALID_ARGUMENT.
  [[nodiscard]] Status set_lr(float lr);

  [[nodiscard]] TableStats stats() const;

 private:
  class Body;
  explicit LocalTable(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
};

}  // namespace corro::table
