// read_manifest() with a file that holds anything. Few random texts have a right checksum, so the
// input is sealed here: what is behind the checksum has to be as careful.
#include <string>

#include "base/check.h"
#include "checkpoint/crc32c.h"
#include "checkpoint/manifest.h"

#include <fmt/format.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace corro::checkpoint;
  const std::string body(reinterpret_cast<const char*>(data), size);
  const uint32_t sum = crc32c(std::as_bytes(std::span(body)));
  (void)read_manifest(body, "m.json");
  const auto manifest =
      read_manifest(body + fmt::format(R"(,"crc32c":"{:08x}")", sum) + "}\n", "m.json");
  if (!manifest.ok()) {
    CORRO_CHECK(manifest.status().message().starts_with("m.json: "), manifest.status().message());
    return 0;
  }
  (void)check_complete(*manifest);
  const auto again = read_manifest(manifest_to_text(*manifest).value(), "again");
  CORRO_CHECK(again.ok() && *again == *manifest);
  return 0;
}
