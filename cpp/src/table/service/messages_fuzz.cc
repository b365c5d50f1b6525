// What a worker and a table server say to each other: any bytes after a header, as every message.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "table/service/served_table.h"

namespace {

using corro::Bytes;
using corro::BytesView;

void try_open(BytesView body) {
  const auto open = corro::table::decode_open(body);
  if (!open.ok()) return;
  const Bytes again = corro::table::encode_open(*open);
  CORRO_CHECK(std::ranges::equal(body, again));
  (void)corro::table::check(open->spec);
}

void try_rows(BytesView body, size_t keys, uint32_t dim) {
  const auto rows = corro::table::decode_rows(body, keys, dim);
  if (!rows.ok()) return;
  const size_t count = rows->values.size() / dim;
  CORRO_CHECK(count <= keys && rows->values.size() == count * dim);
  CORRO_CHECK(rows->changed.size() == (count == keys ? 0 : count));
}

/// A table takes a push in parts as whole, or refuses it and changes nothing.
void try_push(BytesView body, uint32_t dim) {
  const auto push = corro::table::decode_push(body, dim);
  if (!push.ok()) return;
  CORRO_CHECK(push->gradients.size() == push->keys.size() * dim);
  auto table =
      corro::table::ServedTable::create({.spec = {.name = "t", .dim = dim}, .rank = 0, .ranks = 1});
  CORRO_CHECK(table.ok());
  const auto taken = (*table)->take(0, *push);
  const bool whole = taken.ok() && *taken == corro::table::ServedTable::Taken::kWhole;
  CORRO_CHECK((*table)->ready() == whole);
  if (whole) CORRO_CHECK((*table)->apply().ok() == ((*table)->steps() == 1));
}

/// What can be read is written again as it was.
template <typename Read, typename Write>
void try_both(BytesView body, const Read& read, const Write& write) {
  const auto message = read(body);
  if (message.ok()) CORRO_CHECK(std::ranges::equal(body, write(*message)));
}

/// A table takes rows over, or refuses them.
void try_import(BytesView body, uint32_t dim) {
  const auto rows = corro::table::decode_packed(body);
  if (!rows.ok()) return;
  CORRO_CHECK(rows->rows.size() == rows->keys.size() * rows->row_bytes);
  auto table =
      corro::table::ServedTable::create({.spec = {.name = "t", .dim = dim}, .rank = 0, .ranks = 1});
  CORRO_CHECK(table.ok());
  if (!(*table)->unpack(*rows).ok()) return;
  CORRO_CHECK((*table)->steps() == rows->steps);
  corro::table::Export all{.shards = {}, .from = 0, .most_bytes = UINT32_MAX};
  all.shards.set();
  const Bytes again = (*table)->pack(all).value();
  CORRO_CHECK(std::ranges::equal(corro::table::decode_packed(again)->keys, rows->keys));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto all = std::as_bytes(std::span(data, size));
  if (all.size() < corro::table::kHeaderBytes) return 0;
  std::array<std::byte, corro::table::kHeaderBytes> raw{};
  std::ranges::copy(all.first(raw.size()), raw.begin());
  const auto header = corro::table::decode_header(raw);
  if (!header.ok()) return 0;
  CORRO_CHECK(corro::table::encode_header(*header) == raw);
  const BytesView rest = all.subspan(raw.size());
  const Bytes body(rest.begin(), rest.end());  // Aligned.
  using corro::table::MessageKind;
  if (header->kind == MessageKind::kOpen) try_open(body);
  if (header->kind == MessageKind::kOpened) (void)corro::table::decode_opened(body);
  if (header->kind == MessageKind::kPull) (void)corro::table::decode_pull(body);
  if (header->kind == MessageKind::kRows) try_rows(body, header->request, 1 + header->table % 8);
  if (header->kind == MessageKind::kPush) try_push(body, 1 + header->table % 8);
  if (header->kind == MessageKind::kLost) (void)corro::table::decode_lost(body);
  using corro::table::decode_export, corro::table::encode_export;
  using corro::table::decode_holds, corro::table::encode_holds;
  if (header->kind == MessageKind::kExport) try_both(body, decode_export, encode_export);
  if (header->kind == MessageKind::kHolds) try_both(body, decode_holds, encode_holds);
  if (header->kind == MessageKind::kImport) try_import(body, 1 + header->table % 8);
  if (header->kind == MessageKind::kError) CORRO_CHECK(!corro::table::decode_error(body).ok());
  return 0;
}
