#include "table/service/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>

#include "wire/server_number.h"

namespace corro::table {
namespace {

/// "CTB3": the version is the last byte.
constexpr uint32_t kMagic = 0x33425443;
constexpr size_t kPullHeadBytes = 16;
constexpr size_t kRowsHeadBytes = 16;
constexpr size_t kPushHeadBytes = 40;
constexpr size_t kMaxErrorText = 4096;
constexpr size_t kPackedHeadBytes = 24;
constexpr size_t kMaxAddress = 128;
/// Shards of a word of a ShardSet.
constexpr size_t kWordBits = 64;

Status malformed(std::string_view what) {
  return {Code::kInvalidArgument, fmt::format("table: a malformed {}", what)};
}

void write_float(ByteWriter& writer, float value) { writer.write(std::bit_cast<uint32_t>(value)); }

/// Reads fields one after the other; `ok` says whether all were there.
class Fields {
 public:
  explicit Fields(BytesView body) : reader_(body) {}

  template <typename T>
  void take(T& into) {
    const auto value = reader_.read<T>();
    ok_ = ok_ && value.has_value();
    if (value) into = *value;
  }
  void take(float& into) {
    uint32_t bits = 0;
    take(bits);
    into = std::bit_cast<float>(bits);
  }
  /// An enum with `count` values.
  template <typename Enum>
  void take_enum(Enum& into, int count) {
    uint8_t value = 0;
    take(value);
    ok_ = ok_ && value < count;
    if (ok_) into = static_cast<Enum>(value);
  }
  void take(std::string& into, size_t cap) {
    auto text = reader_.read_string(cap);
    ok_ = ok_ && text.has_value();
    if (text) into = *std::move(text);
  }
  void take(ShardSet& into) {
    const auto shards = read_shards(reader_);
    ok_ = ok_ && shards.has_value();
    if (shards) into = *shards;
  }
  [[nodiscard]] bool done() const { return ok_ && reader_.done(); }

 private:
  ByteReader reader_;
  bool ok_ = true;
};

template <typename T>
std::span<const T> view_as(BytesView bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

bool ascends(std::span<const uint64_t> keys) {
  return std::ranges::adjacent_find(keys, std::greater_equal()) == keys.end();
}

}  // namespace

void write_shards(ByteWriter& writer, const ShardSet& shards) {
  for (size_t first = 0; first < kShards; first += kWordBits) {
    uint64_t word = 0;
    for (size_t bit = 0; bit < kWordBits; ++bit) word |= uint64_t{shards.test(first + bit)} << bit;
    writer.write(word);
  }
}

std::optional<ShardSet> read_shards(ByteReader& reader) {
  ShardSet shards;
  for (size_t first = 0; first < kShards; first += kWordBits) {
    const auto word = reader.read<uint64_t>();
    if (!word) return std::nullopt;
    for (size_t bit = 0; bit < kWordBits; ++bit)
      if ((*word >> bit & 1U) != 0) shards.set(first + bit);
  }
  return shards;
}

std::array<std::byte, kHeaderBytes> encode_header(const Header& header) {
  ByteWriter writer;
  writer.write(kMagic);
  writer.write(static_cast<uint8_t>(header.kind));
  writer.write(uint8_t{0});
  writer.write(header.table);
  writer.write(header.request);
  writer.write(header.body);
  std::array<std::byte, kHeaderBytes> raw{};
  std::ranges::copy(writer.bytes(), raw.begin());
  return raw;
}

Result<Header> decode_header(std::span<const std::byte, kHeaderBytes> raw) {
  Fields fields(raw);
  uint32_t magic = 0;
  uint8_t kind = 0;
  uint8_t zero = 0;
  Header header;
  fields.take(magic);
  fields.take(kind);
  fields.take(zero);
  fields.take(header.table);
  fields.take(header.request);
  fields.take(header.body);
  if (magic != kMagic || kind == 0 || kind > kLastMessageKind || zero != 0)
    return malformed("header");
  if (header.body > kMaxBodyBytes)
    return Status(
        Code::kInvalidArgument,
        fmt::format("table: a message of {} bytes; {} are the most", header.body, kMaxBodyBytes));
  header.kind = static_cast<MessageKind>(kind);
  return header;
}

Bytes encode_open(const Open& open) {
  const auto& [name, dim, dtype, seed, optimizer, initial, retention, mode, staleness] = open.spec;
  ByteWriter writer;
  writer.write_string(name);
  writer.write(dim);
  writer.write(static_cast<uint8_t>(dtype));
  writer.write(seed);
  writer.write(static_cast<uint8_t>(optimizer.kind));
  for (const float value :
       {optimizer.lr, optimizer.momentum, optimizer.beta1, optimizer.beta2, optimizer.epsilon,
        optimizer.initial_accumulator, optimizer.l1, optimizer.l2, optimizer.beta})
    write_float(writer, value);
  writer.write(static_cast<uint8_t>(initial.kind));
  write_float(writer, initial.low);
  write_float(writer, initial.high);
  writer.write(retention.least_pushes);
  writer.write(retention.idle_steps);
  writer.write(retention.most_bytes);
  writer.write_string(retention.spill);
  writer.write(open.rank);
  writer.write(open.ranks);
  writer.write(open.replicas);
  writer.write(static_cast<uint8_t>(mode));
  writer.write(staleness);
  return writer.take();
}

Result<Open> decode_open(BytesView body) {
  Open open;
  TableSpec& spec = open.spec;
  Fields fields(body);
  fields.take(spec.name, kMaxNameBytes);
  fields.take(spec.dim);
  fields.take_enum(spec.dtype, kDTypeCount);
  fields.take(spec.seed);
  Optimizer& optimizer = spec.optimizer;
  fields.take_enum(optimizer.kind, kOptimizerKindCount);
  for (float* value :
       {&optimizer.lr, &optimizer.momentum, &optimizer.beta1, &optimizer.beta2, &optimizer.epsilon,
        &optimizer.initial_accumulator, &optimizer.l1, &optimizer.l2, &optimizer.beta})
    fields.take(*value);
  fields.take_enum(spec.initial.kind, kInitialKindCount);
  fields.take(spec.initial.low);
  fields.take(spec.initial.high);
  fields.take(spec.retention.least_pushes);
  fields.take(spec.retention.idle_steps);
  fields.take(spec.retention.most_bytes);
  fields.take(spec.retention.spill, kMaxSpillBytes);
  fields.take(open.rank);
  fields.take(open.ranks);
  fields.take(open.replicas);
  fields.take_enum(spec.mode, kModeCount);
  fields.take(spec.staleness);
  if (!fields.done() || open.ranks == 0 || open.ranks > kMaxRanks || open.rank >= open.ranks ||
      open.replicas > kMaxReplicas)
    return malformed("OPEN");
  return open;
}

Bytes encode_opened(const Opened& opened) {
  ByteWriter writer;
  writer.write(opened.steps);
  return writer.take();
}

Result<Opened> decode_opened(BytesView body) {
  Fields fields(body);
  Opened opened;
  fields.take(opened.steps);
  if (!fields.done()) return malformed("OPENED");
  return opened;
}

Bytes encode_pull(uint16_t table, uint32_t request, const PullHead& head,
                  std::span<const uint64_t> keys) {
  ByteWriter writer;
  writer.write_bytes(
      encode_header({.kind = MessageKind::kPull,
                     .table = table,
                     .request = request,
                     .body = static_cast<uint32_t>(kPullHeadBytes + keys.size_bytes())}));
  writer.write(head.since);
  writer.write(head.at_least);
  writer.write_bytes(std::as_bytes(keys));
  return writer.take();
}

Bytes encode_rows(const Header& to, uint64_t steps, size_t count, uint32_t dim,
                  std::span<const uint32_t> changed) {
  const size_t values = count * dim * sizeof(float);
  const size_t body = kRowsHeadBytes + values + changed.size_bytes();
  ByteWriter writer;
  writer.write_bytes(encode_header({.kind = MessageKind::kRows,
                                    .table = to.table,
                                    .request = to.request,
                                    .body = static_cast<uint32_t>(body)}));
  writer.write(steps);
  writer.write(uint64_t{count});
  Bytes bytes = writer.take();
  bytes.resize(kHeaderBytes + body);
  std::ranges::copy(std::as_bytes(changed),
                    bytes.begin() + static_cast<ptrdiff_t>(kHeaderBytes + kRowsHeadBytes + values));
  return bytes;
}

std::span<float> values_of(Bytes& rows, size_t count, uint32_t dim) {
  return {reinterpret_cast<float*>(rows.data() + kHeaderBytes + kRowsHeadBytes), count * dim};
}

Bytes encode_push(uint16_t table, uint32_t request, const PushHead& head,
                  std::span<const uint64_t> keys, uint32_t dim) {
  const size_t body = kPushHeadBytes + keys.size_bytes() + keys.size() * dim * sizeof(float);
  ByteWriter writer;
  writer.write_bytes(encode_header({.kind = MessageKind::kPush,
                                    .table = table,
                                    .request = request,
                                    .body = static_cast<uint32_t>(body)}));
  writer.write(head.step);
  writer.write(head.version);
  writer.write(head.first);
  writer.write(head.rows);
  writer.write(head.patience_ms);
  write_float(writer, head.lr);
  Bytes bytes = writer.take();
  bytes.resize(kHeaderBytes + body);
  if (!keys.empty())
    std::memcpy(bytes.data() + kHeaderBytes + kPushHeadBytes, keys.data(), keys.size_bytes());
  return bytes;
}

std::span<float> gradients_of(Bytes& push, size_t keys) {
  const size_t begin = kHeaderBytes + kPushHeadBytes + keys * sizeof(uint64_t);
  return {reinterpret_cast<float*>(push.data() + begin), (push.size() - begin) / sizeof(float)};
}

Result<Pull> decode_pull(BytesView body) {
  if (body.size() < kPullHeadBytes || body.size() % sizeof(uint64_t) != 0) return malformed("PULL");
  Pull pull;
  Fields fields(body.first(kPullHeadBytes));
  fields.take(pull.head.since);
  fields.take(pull.head.at_least);
  pull.keys = view_as<uint64_t>(body.subspan(kPullHeadBytes));
  if (!ascends(pull.keys)) return malformed("PULL");
  return pull;
}

Result<PulledRows> decode_rows(BytesView body, size_t keys, uint32_t dim) {
  if (body.size() < kRowsHeadBytes) return malformed("ROWS");
  PulledRows rows;
  uint64_t count = 0;
  Fields fields(body.first(kRowsHeadBytes));
  fields.take(rows.steps);
  fields.take(count);
  const BytesView rest = body.subspan(kRowsHeadBytes);
  if (count > keys) return malformed("ROWS");
  const size_t values = count * dim * sizeof(float);
  const size_t changed = count == keys ? 0 : count * sizeof(uint32_t);
  if (rest.size() != values + changed) return malformed("ROWS");
  rows.values = view_as<float>(rest.first(values));
  rows.changed = view_as<uint32_t>(rest.subspan(values));
  const bool ascend =
      std::ranges::adjacent_find(rows.changed, std::greater_equal()) == rows.changed.end();
  if (!ascend || (!rows.changed.empty() && rows.changed.back() >= keys)) return malformed("ROWS");
  return rows;
}

Result<Push> decode_push(BytesView body, uint32_t dim) {
  if (body.size() < kPushHeadBytes) return malformed("PUSH");
  Push push;
  Fields fields(body.first(kPushHeadBytes));
  fields.take(push.head.step);
  fields.take(push.head.version);
  fields.take(push.head.first);
  fields.take(push.head.rows);
  fields.take(push.head.patience_ms);
  fields.take(push.head.lr);
  const size_t row_bytes = sizeof(uint64_t) + dim * sizeof(float);
  const BytesView rest = body.subspan(kPushHeadBytes);
  if (rest.size() % row_bytes != 0) return malformed("PUSH");
  const size_t keys = rest.size() / row_bytes;
  push.keys = view_as<uint64_t>(rest.first(keys * sizeof(uint64_t)));
  push.gradients = view_as<float>(rest.subspan(keys * sizeof(uint64_t)));
  const bool fits = push.head.first <= push.head.rows && keys <= push.head.rows - push.head.first;
  if (push.head.step == 0 || !fits || !ascends(push.keys)) return malformed("PUSH");
  return push;
}

Bytes encode_lost(uint32_t request, uint32_t server) {
  ByteWriter writer;
  writer.write(server);
  return encode_message({.kind = MessageKind::kLost, .request = request}, writer.bytes());
}

Result<uint32_t> decode_lost(BytesView body) {
  Fields fields(body);
  uint32_t server = 0;
  fields.take(server);
  if (!fields.done()) return malformed("LOST");
  return server;
}

Bytes encode_export(const Export& wanted) {
  ByteWriter writer;
  writer.write(wanted.from);
  writer.write(wanted.most_bytes);
  write_shards(writer, wanted.shards);
  return writer.take();
}

Result<Export> decode_export(BytesView body) {
  Fields fields(body);
  Export wanted;
  fields.take(wanted.from);
  fields.take(wanted.most_bytes);
  fields.take(wanted.shards);
  if (!fields.done()) return malformed("EXPORT");
  return wanted;
}

Bytes encode_packed(const PackedRows& rows) {
  ByteWriter writer;
  writer.write(rows.steps);
  writer.write(uint64_t{rows.more});
  writer.write(uint64_t{rows.row_bytes});
  writer.write_bytes(std::as_bytes(rows.keys));
  Bytes bytes = writer.take();
  bytes.resize(bytes.size() + rows.keys.size() * rows.row_bytes);
  return bytes;
}

std::span<std::byte> rows_of(Bytes& packed, const PackedRows& rows) {
  return std::span(packed).subspan(kPackedHeadBytes + rows.keys.size_bytes());
}

Result<PackedRows> decode_packed(BytesView body) {
  if (body.size() < kPackedHeadBytes) return malformed("IMPORT");
  Fields fields(body.first(kPackedHeadBytes));
  PackedRows packed;
  uint64_t more = 0;
  uint64_t row_bytes = 0;
  fields.take(packed.steps);
  fields.take(more);
  fields.take(row_bytes);
  const BytesView rest = body.subspan(kPackedHeadBytes);
  if (more > 1 || row_bytes == 0 || row_bytes > kMaxBodyBytes ||
      rest.size() % (sizeof(uint64_t) + row_bytes) != 0)
    return malformed("IMPORT");
  packed.more = more == 1;
  packed.row_bytes = static_cast<uint32_t>(row_bytes);
  const size_t keys = rest.size() / (sizeof(uint64_t) + row_bytes);
  packed.keys = view_as<uint64_t>(rest.first(keys * sizeof(uint64_t)));
  packed.rows = rest.subspan(keys * sizeof(uint64_t));
  if (!ascends(packed.keys) || (packed.more && keys == 0)) return malformed("IMPORT");
  return packed;
}

Bytes encode_holds(const Holds& holds) {
  ByteWriter writer;
  writer.write(holds.version);
  writer.write(static_cast<uint32_t>(holds.servers.size()));
  for (const Holds::Server& server : holds.servers) {
    writer.write(server.number);
    writer.write_string(server.address);
    write_shards(writer, server.shards);
  }
  return writer.take();
}

Result<Holds> decode_holds(BytesView body) {
  Fields fields(body);
  Holds holds;
  uint32_t count = 0;
  fields.take(holds.version);
  fields.take(count);
  if (holds.version == 0 || count > static_cast<uint32_t>(wire::kMostServers))
    return malformed("HOLDS");
  holds.servers.resize(count);
  for (Holds::Server& server : holds.servers) {
    fields.take(server.number);
    fields.take(server.address, kMaxAddress);
    fields.take(server.shards);
  }
  const bool ascend = std::ranges::adjacent_find(holds.servers, std::greater_equal(),
                                                 &Holds::Server::number) == holds.servers.end();
  const bool known =
      count == 0 || holds.servers.back().number < static_cast<uint32_t>(wire::kMostServers);
  if (!fields.done() || !ascend || !known) return malformed("HOLDS");
  return holds;
}

Bytes encode_error(const Status& status) {
  ByteWriter writer;
  writer.write(static_cast<uint8_t>(status.code()));
  writer.write_string(std::string_view(status.message()).substr(0, kMaxErrorText));
  return writer.take();
}

Status decode_error(BytesView body) {
  Fields fields(body);
  Code code = Code::kOk;
  std::string text;
  fields.take_enum(code, static_cast<int>(Code::kUnauthenticated) + 1);
  fields.take(text, kMaxErrorText);
  if (!fields.done() || code == Code::kOk) return malformed("ERROR");
  return {code, text};
}

Bytes encode_message(Header header, BytesView body) {
  header.body = static_cast<uint32_t>(body.size());
  const auto raw = encode_header(header);
  Bytes bytes;
  bytes.reserve(raw.size() + body.size());
  bytes.insert(bytes.end(), raw.begin(), raw.end());
  bytes.insert(bytes.end(), body.begin(), body.end());
  return bytes;
}

}  // namespace corro::table
