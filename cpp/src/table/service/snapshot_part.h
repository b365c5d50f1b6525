// The file of a part of a snapshot: the rows of some shards of a table. Bytes: design 0048.
//
//   Bytes file = encode_part_head({.spec = spec, .step = 1000});
//   for (const Bytes& page : pages) use(frame_of(page), page);  // into the file, behind the head
//
//   PartReader reader(loader);       // or a PageQueue, which another thread empties
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
#include <vector>

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

/// Takes what parts hold. What it returns ends the reading.
class PartSink {
 public:
  virtual ~PartSink() = default;
  PartSink() = default;
  PartSink(const PartSink&) = default;
  PartSink& operator=(const PartSink&) = default;
  PartSink(PartSink&&) = default;
  PartSink& operator=(PartSink&&) = default;

  [[nodiscard]] virtual Status take_head(const PartHead& head) = 0;
  /// After a head: a body of EXPORTED, whose memory it may keep, and give other memory for it.
  [[nodiscard]] virtual Status take_page(Bytes& page) = 0;
};

/// Rows out of parts. Externally synchronized.
class RowLoader final : public PartSink {
 public:
  /// `steps`: that the table had taken, of a whole snapshot and of each delta on it, ascending; the last
  /// ones are those of the table that is made. `rows`: about so many are in the whole one.
  [[nodiscard]] static Result<RowLoader> create(const LoadOptions& options,
                                                std::vector<uint64_t> steps, uint64_t rows = 0);

  /// INVALID_ARGUMENT if the part is of another table, naming the field that differs; DATA_LOSS if
  /// it is of none of the steps, or of one before the part before.
  [[nodiscard]] Status take_head(const PartHead& head) override;
  /// DATA_LOSS if the page is none, or does not fit its head.
  [[nodiscard]] Status take_page(Bytes& page) override;
  [[nodiscard]] std::unique_ptr<LocalTable> take() { return std::move(rows_); }

 private:
  RowLoader(const LoadOptions& options, std::vector<uint64_t> steps,
            std::unique_ptr<LocalTable> rows);
  void take_row(uint64_t key, BytesView row);

  LoadOptions options_;
  std::vector<uint64_t> steps_;
  uint64_t step_;  ///< Of the part.
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
  /// `sink` is borrowed.
  explicit PartReader(PartSink& sink) : sink_(sink) {}
  /// DATA_LOSS if it is no part; else as the sink.
  [[nodiscard]] Status take(BytesView bytes);
  /// There is no more: DATA_LOSS if it ends too early.
  [[nodiscard]] Status finish() const;

 private:
  [[nodiscard]] Status take_unit();
  [[nodiscard]] size_t unit_bytes() const;

  enum class Awaits : uint8_t { kLength, kHead, kFrame, kPage, kNothing };
  PartSink& sink_;
  Awaits awaits_ = Awaits::kLength;
  size_t length_ = 0;  ///< Of the head or the page that is awaited.
  Bytes buffer_;       ///< Of the unit, as far as it is there.
};

}  // namespace corro::table
