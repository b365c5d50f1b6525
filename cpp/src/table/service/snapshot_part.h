// The file of a part of a snapshot: the rows of some shards of a table. Bytes: design 0048.
//
//   Bytes file = encode_part_head({.spec = spec, .step = 1000});
//   for (const Bytes& page : pages) use(frame_of(page), page);  // into the file, behind the head
//
//   PartReader reader(loader);
//   CORRO_TRY(reader.take(bytes));   // as they come
//   CORRO_TRY(reader.finish());
//
// RowLoader makes a table out of rows of any number of parts, of those shards that it is to have.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "table/local_table.h"
#include "table/service/holders.h"
#include "table/service/messages.h"

namespace corro::table {

/// What a part begins with.
struct PartHead {
  TableSpec spec;
  uint64_t step = 0;  ///< Of the table: its rows are those after so many steps.
  bool operator==(const PartHead&) const = default;
};

inline constexpr size_t kPartFrameBytes = 8;
/// Pages follow, each behind its frame. A frame of an empty page ends the part.
[[nodiscard]] Bytes encode_part_head(const PartHead& head);
[[nodiscard]] std::array<std::byte, kPartFrameBytes> frame_of(BytesView page);

/// Which rows are wanted, and how their table is made here.
struct LoadOptions {
  TableSpec spec;
  bool weights_only = false;  ///< The optimizer may be another: its state begins anew.
  ShardSet shards = {};
  size_t shard_count = kShards;  ///< As of Holders.
};

/// Rows out of parts. Externally synchronized.
class RowLoader {
 public:
  /// `step`: that the table had taken.
  [[nodiscard]] static Result<RowLoader> create(const LoadOptions& options, uint64_t step);

  /// INVALID_ARGUMENT if the part is of another table, naming the field that differs; DATA_LOSS if
  /// it is of another step.
  [[nodiscard]] Status take_head(const PartHead& head);
  /// After a head. DATA_LOSS if the page does not fit it.
  [[nodiscard]] Status take_page(const PackedRows& page);
  [[nodiscard]] std::unique_ptr<LocalTable> take() { return std::move(rows_); }

 private:
  RowLoader(const LoadOptions& options, uint64_t step, std::unique_ptr<LocalTable> rows);
  void take_row(uint64_t key, BytesView row);

  LoadOptions options_;
  uint64_t step_;
  std::unique_ptr<LocalTable> rows_;
  size_t weight_bytes_ = 0;
  Bytes fresh_;             ///< A packed row whose optimizer has a state that nothing has changed.
  size_t there_bytes_ = 0;  ///< Of a packed row of this part.
  bool as_it_is_ = true;    ///< A row is taken with its optimizer's state.
  std::vector<uint64_t> keys_;  ///< Of the page, those that are wanted, and their rows.
  Bytes packed_;
};

/// Reads a part in pieces of any length. Externally synchronized.
class PartReader {
 public:
  /// `loader` is borrowed.
  explicit PartReader(RowLoader& loader) : loader_(loader) {}
  /// DATA_LOSS if it is no part; else as RowLoader.
  [[nodiscard]] Status take(BytesView bytes);
  /// There is no more: DATA_LOSS if it ends too early.
  [[nodiscard]] Status finish() const;

 private:
  [[nodiscard]] Status take_unit(BytesView unit);
  [[nodiscard]] size_t unit_bytes() const;

  enum class Awaits : uint8_t { kLength, kHead, kFrame, kPage, kNothing };
  RowLoader& loader_;
  Awaits awaits_ = Awaits::kLength;
  size_t length_ = 0;  ///< Of the head or the page that is awaited.
  Bytes buffer_;       ///< Of a unit that is there in part.
};

}  // namespace corro::table
