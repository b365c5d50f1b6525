// The selection table that rank 0 broadcasts.
#include <algorithm>
#include <span>

#include "base/check.h"
#include "collective/schedule/selection.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace corro;
  // Mutations rarely hit the one size that is right.
  Bytes bytes(collective::kEncodedTableBytes);
  std::copy_n(std::as_bytes(std::span(data, size)).begin(), std::min(size, bytes.size()),
              bytes.begin());
  const auto table = collective::decode_selection_table(bytes);
  if (!table.ok()) return 0;
  CORRO_CHECK(std::ranges::equal(bytes, collective::encode(*table)));
  for (int kind = 0; kind < kOpKindCount; ++kind) {
    const collective::Problem problem{.kind = static_cast<OpKind>(kind),
                                      .size = 3,
                                      .root = is_pair(static_cast<OpKind>(kind)) ? 1 : 0,
                                      .count = size};
    CORRO_CHECK(collective::supports(collective::choose(*table, problem, 4), problem), kind);
  }
  return 0;
}
