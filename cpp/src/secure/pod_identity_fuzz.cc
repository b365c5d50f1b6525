// What a dialler says of itself before anything is proved.
#include "base/check.h"
#include "secure/credentials.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto identity = corro::secure::decode_identity(text);
  if (identity.ok()) CORRO_CHECK(corro::secure::encode_identity(*identity) == text);
  return 0;
}
