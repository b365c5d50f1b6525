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
  if (header->kind == MessageKind::kPush) try_push(body, 1 + header->table % 8);
  if (header->kind == MessageKind::kLost) (void)corro::table::decode_lost(body);
  if (header->kind == MessageKind::kError) CORRO_CHECK(!corro::table::decode_error(body).ok());
  return 0;
}
