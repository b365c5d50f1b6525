// A part of a snapshot, and what is said about snapshots: the first byte says which.
#include <algorithm>

#include "base/check.h"
#include "table/service/snapshot_messages.h"
#include "table/service/snapshot_part.h"

namespace {

using corro::Bytes;
using corro::BytesView;
namespace table = corro::table;

/// What can be read is written again as it was.
template <typename Read, typename Write>
void try_again(BytesView body, const Read& read, const Write& write) {
  const auto message = read(body);
  if (message.ok()) CORRO_CHECK(std::ranges::equal(body, write(*message)));
}

/// A part of another table is refused, and rows of this one are taken, in pieces of any length.
void try_part(BytesView bytes, size_t piece) {
  auto loader = table::RowLoader::create(
      {.spec = {.name = "t", .dim = 2}, .weights_only = true, .shards = table::ShardSet().set()},
      /*steps=*/{1, 2});
  CORRO_CHECK(loader.ok());
  table::PartReader reader(*loader);
  while (!bytes.empty()) {
    const size_t count = std::min(piece, bytes.size());
    if (!reader.take(bytes.first(count)).ok()) return;
    bytes = bytes.subspan(count);
  }
  (void)reader.finish();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto all = std::as_bytes(std::span(data, size));
  const BytesView rest = all.subspan(1);
  switch (data[0] % 5) {
    case 0:
      try_again(rest, table::decode_save, table::encode_save);
      break;
    case 1:
      try_again(rest, table::decode_load, table::encode_load);
      break;
    case 2:
      (void)table::decode_saved(rest);
      break;
    case 3:
      try_again(rest, table::decode_loaded, table::encode_loaded);
      break;
    default:
      try_part(rest, 1 + data[0] / 5);
  }
  return 0;
}
