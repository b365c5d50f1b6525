// What a worker and a table server say to each other, after the handshake of every connection
// (wire/handshake.h, purpose "table"). Bytes: docs/wire.md.
//
//   worker                              server
//   OPEN ->                             a table: its spec, and whose rank asks
//      <- OPENED                        how many steps it has taken
//   PULL ->                             sorted keys
//      <- ROWS                          their rows, in this order, or those alone that have changed
//   PUSH ->                             a part of this rank's gradients in one step of the table
//      <- PUSHED                        the part is there; after the last one: the step is applied
//      <- ERROR                         in the place of any answer
//   LOST ->                             a server that this rank cannot reach
//      <- LOST                          to all ranks: none uses that server any more
//
// Rank 0 copies rows from server to server (holders.h), and tells who holds what:
//
//   EXPORT ->                           some shards, from some key on
//      <- EXPORTED                      rows of them as the server keeps them, and whether there are more
//   IMPORT ->                           the body of EXPORTED, to another server
//      <- IMPORTED                      the rows are there
//   HOLDS ->                            who holds which shards, from the next step on
//      <- HOLDS                         to all ranks
//
// What they say about snapshots is in snapshot_messages.h.
//
// Answers carry the number of their request, and come in any order. A table has the number that the
// worker gave it in OPEN, on this connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "table/service/holders.h"
#include "table/types.h"

namespace corro::table {

enum class MessageKind : uint8_t {
  kOpen = 1,
  kOpened = 2,
  kPull = 3,
  kRows = 4,
  kPush = 5,
  kPushed = 6,
  kError = 7,
  kLost = 8,
  kExport = 9,
  kExported = 10,
  kImport = 11,
  kImported = 12,
  kHolds = 13,
  // snapshot_messages.h
  kSave = 40,
  kSaving = 41,
  kSaved = 42,
  kLoad = 43,
  kLoaded = 44,
  kAdopt = 45,
  kAdopted = 46,
  kLeaving = 47,
  kRelease = 48,
};
inline constexpr uint8_t kLastMessageKind = 48;

inline constexpr size_t kHeaderBytes = 16;
/// Of a body. Whoever has more to say says it in several messages.
inline constexpr size_t kMaxBodyBytes = size_t{64} << 20U;
/// Ranks of a job that use a table.
inline constexpr uint32_t kMaxRanks = 1U << 16U;
/// Tables that a worker uses on one connection.
inline constexpr uint16_t kMaxTables = 4096;
/// Further servers that have a row.
inline constexpr uint32_t kMaxReplicas = 3;

struct Header {
  MessageKind kind = MessageKind::kOpen;
  uint16_t table = 0;    ///< The worker's number of it.
  uint32_t request = 0;  ///< The worker's number of what it asks; repeated in the answer.
  uint32_t body = 0;     ///< Bytes that follow.
};

struct Open {
  TableSpec spec;
  uint32_t rank = 0;
  uint32_t ranks = 1;
  uint32_t replicas = 0;  ///< Further servers that have each row.
  bool operator==(const Open&) const = default;
};
struct Opened {
  uint64_t steps = 0;  ///< That the table has taken; in async mode pushes of the rank that asks.
};

/// What precedes the keys of PULL.
struct PullHead {
  uint64_t since = 0;  ///< Rows that no step after this one has changed may be left out; 0: none.
  uint64_t at_least = 0;  ///< The answer waits until the table has taken so many steps.
  bool operator==(const PullHead&) const = default;
};
/// Points into the message.
struct Pull {
  PullHead head;
  std::span<const uint64_t> keys;  ///< [n], ascending.
};
/// Points into the message.
struct PulledRows {
  uint64_t steps = 0;                 ///< That the table has taken.
  std::span<const float> values;      ///< [count, dim]
  std::span<const uint32_t> changed;  ///< [count], ascending: of which keys; empty: of all.
};

/// What precedes keys and gradients in PUSH.
struct PushHead {
  uint64_t step = 0;         ///< From 1.
  uint64_t version = 0;      ///< Of the holders by which its keys were picked.
  uint64_t first = 0;        ///< Rows of this push in earlier parts.
  uint64_t rows = 0;         ///< Of all parts.
  uint32_t patience_ms = 0;  ///< So long the server waits for the other ranks.
  float lr = 0;
  bool operator==(const PushHead&) const = default;
};
/// Points into the message.
struct Push {
  PushHead head;
  std::span<const uint64_t> keys;    ///< [n], ascending.
  std::span<const float> gradients;  ///< [n, dim]
};

/// Which rows EXPORT asks for.
struct Export {
  ShardSet shards;
  uint64_t from = 0;        ///< The least key.
  uint32_t most_bytes = 0;  ///< Of packed rows, but for the last one: at least 1 row.
  bool operator==(const Export&) const = default;
};
/// Rows of EXPORTED and IMPORT; points into the message.
struct PackedRows {
  uint64_t steps = 0;               ///< That the table has taken.
  bool more = false;                ///< Rows with greater keys are still to come.
  uint32_t row_bytes = 0;           ///< Of a packed row: LocalTable::packed_bytes().
  std::span<const uint64_t> keys;   ///< [n], ascending.
  std::span<const std::byte> rows;  ///< [n, row_bytes]
};
/// Who holds which shards of a table, as HOLDS says it.
struct Holds {
  struct Server {
    uint32_t number = 0;
    std::string address;  ///< "ADDRESS:PORT"
    ShardSet shards;
    bool operator==(const Server&) const = default;
  };
  uint64_t version = 0;         ///< From 1.
  std::vector<Server> servers;  ///< Numbers ascend.
  bool operator==(const Holds&) const = default;
};

[[nodiscard]] std::array<std::byte, kHeaderBytes> encode_header(const Header& header);
/// INVALID_ARGUMENT unless encode_header() could have written it, and the body is not too long.
[[nodiscard]] Result<Header> decode_header(std::span<const std::byte, kHeaderBytes> raw);

[[nodiscard]] Bytes encode_open(const Open& open);
/// INVALID_ARGUMENT unless it is exactly what encode_open() writes; the spec is not checked.
[[nodiscard]] Result<Open> decode_open(BytesView body);
[[nodiscard]] Bytes encode_opened(const Opened& opened);
[[nodiscard]] Result<Opened> decode_opened(BytesView body);

/// Whole messages. `keys`: ascending.
[[nodiscard]] Bytes encode_pull(uint16_t table, uint32_t request, const PullHead& head,
                                std::span<const uint64_t> keys);
/// Room for `count` rows follows the head, at values_of() it, and then `changed`: its size is
/// `count`, or 0 if these are all rows.
[[nodiscard]] Bytes encode_rows(const Header& to, uint64_t steps, size_t count, uint32_t dim,
                                std::span<const uint32_t> changed);
[[nodiscard]] std::span<float> values_of(Bytes& rows, size_t count, uint32_t dim);
/// Room for `gradients` follows the keys: [keys.size(), dim] f32 at gradients_of() it.
[[nodiscard]] Bytes encode_push(uint16_t table, uint32_t request, const PushHead& head,
                                std::span<const uint64_t> keys, uint32_t dim);
[[nodiscard]] std::span<float> gradients_of(Bytes& push, size_t keys);

/// INVALID_ARGUMENT if keys do not ascend. `body` is aligned to 8 bytes, and outlives the result.
[[nodiscard]] Result<Pull> decode_pull(BytesView body);
/// Rows of `keys` keys. INVALID_ARGUMENT unless encode_rows() could have written it for them.
[[nodiscard]] Result<PulledRows> decode_rows(BytesView body, size_t keys, uint32_t dim);
/// INVALID_ARGUMENT if keys do not ascend, or rows of `dim` elements do not fit the length.
[[nodiscard]] Result<Push> decode_push(BytesView body, uint32_t dim);

/// A whole message.
[[nodiscard]] Bytes encode_lost(uint32_t request, uint32_t server);
/// The number of the server that LOST tells of.
[[nodiscard]] Result<uint32_t> decode_lost(BytesView body);

/// 512 bytes.
void write_shards(ByteWriter& writer, const ShardSet& shards);
[[nodiscard]] std::optional<ShardSet> read_shards(ByteReader& reader);

[[nodiscard]] Bytes encode_export(const Export& wanted);
/// INVALID_ARGUMENT unless encode_export() has written it.
[[nodiscard]] Result<Export> decode_export(BytesView body);
/// Room for rows.row_bytes for each key follows, at rows_of() it; rows.rows is not read.
[[nodiscard]] Bytes encode_packed(const PackedRows& rows);
[[nodiscard]] std::span<std::byte> rows_of(Bytes& packed, const PackedRows& rows);
/// INVALID_ARGUMENT if keys do not ascend, or rows do not fit the length. `body` is aligned to 8
/// bytes, and outlives the result.
[[nodiscard]] Result<PackedRows> decode_packed(BytesView body);
[[nodiscard]] Bytes encode_holds(const Holds& holds);
/// INVALID_ARGUMENT unless encode_holds() has written it.
[[nodiscard]] Result<Holds> decode_holds(BytesView body);

[[nodiscard]] Bytes encode_error(const Status& status);
/// The failure that ERROR tells of.
[[nodiscard]] Status decode_error(BytesView body);

/// A whole message of a short body.
[[nodiscard]] Bytes encode_message(Header header, BytesView body);

}  // namespace corro::table
