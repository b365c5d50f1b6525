#include "table/service/snapshot_messages.h"

#include <fmt/format.h>

#include "table/service/messages.h"
#include "wire/server_number.h"

namespace corro::table {
namespace {

constexpr uint32_t kCounts = 1;
constexpr uint32_t kDelta = 2;

Status malformed_snapshot(std::string_view what) {
  return {Code::kInvalidArgument, fmt::format("table: a malformed {}", what)};
}

/// Reads a shard set and a folder, which end a message.
bool read_place(ByteReader& reader, ShardSet& shards, std::string& folder) {
  const auto held = read_shards(reader);
  auto path = reader.read_string(kMaxFolderBytes);
  if (!held || !path || path->empty() || !reader.done()) return false;
  shards = *held;
  folder = *std::move(path);
  return true;
}

}  // namespace

Bytes encode_save(const Save& save) {
  ByteWriter writer;
  writer.write(save.attempt);
  writer.write(save.step);
  writer.write(save.steps);
  writer.write(save.table);
  writer.write(save.part);
  writer.write(save.parts);
  const checkpoint::Base base = save.base.value_or(checkpoint::Base{});
  writer.write(static_cast<uint32_t>((save.counts ? kCounts : 0U) | (save.base ? kDelta : 0U)));
  writer.write(base.checksum);
  writer.write(base.step);
  write_shards(writer, save.shards);
  writer.write_string(save.folder);
  return writer.take();
}

Result<Save> decode_save(BytesView body) {
  ByteReader reader(body);
  Save save;
  save.attempt = reader.read<uint64_t>().value_or(0);
  save.step = reader.read<uint64_t>().value_or(0);
  save.steps = reader.read<uint64_t>().value_or(0);
  save.table = reader.read<uint32_t>().value_or(0);
  save.part = reader.read<uint32_t>().value_or(0);
  save.parts = reader.read<uint32_t>().value_or(0);
  const uint32_t flags = reader.read<uint32_t>().value_or(0);
  checkpoint::Base base;
  base.checksum = reader.read<uint32_t>().value_or(0);
  base.step = reader.read<uint64_t>().value_or(0);
  save.counts = (flags & kCounts) != 0;
  if ((flags & kDelta) != 0) save.base = base;
  if (!read_place(reader, save.shards, save.folder) || save.part >= save.parts ||
      flags > (kCounts | kDelta) || (!save.base && base != checkpoint::Base{}) ||
      save.parts > static_cast<uint32_t>(wire::kMostServers))
    return malformed_snapshot("SAVE");
  return save;
}

Bytes encode_saved(const Saved& saved) {
  ByteWriter writer;
  writer.write(saved.attempt);
  if (!saved.status.ok()) writer.write_bytes(encode_error(saved.status));
  return writer.take();
}

Result<Saved> decode_saved(BytesView body) {
  ByteReader reader(body);
  const auto attempt = reader.read<uint64_t>();
  if (!attempt) return malformed_snapshot("SAVED");
  if (reader.done()) return Saved{*attempt, {}};
  return Saved{*attempt, decode_error(body.subspan(sizeof(uint64_t)))};
}

Bytes encode_load(const Load& load) {
  ByteWriter writer;
  writer.write(load.step);
  writer.write(uint64_t{load.weights_only});
  write_shards(writer, load.shards);
  writer.write_string(load.folder);
  return writer.take();
}

Result<Load> decode_load(BytesView body) {
  ByteReader reader(body);
  Load load;
  load.step = reader.read<uint64_t>().value_or(0);
  const uint64_t weights_only = reader.read<uint64_t>().value_or(2);
  if (!read_place(reader, load.shards, load.folder) || weights_only > 1)
    return malformed_snapshot("LOAD");
  load.weights_only = weights_only == 1;
  return load;
}

Bytes encode_loaded(uint64_t steps) {
  ByteWriter writer;
  writer.write(steps);
  return writer.take();
}

Result<uint64_t> decode_loaded(BytesView body) {
  ByteReader reader(body);
  const auto steps = reader.read<uint64_t>();
  if (!steps || !reader.done()) return malformed_snapshot("LOADED");
  return *steps;
}

}  // namespace corro::table
