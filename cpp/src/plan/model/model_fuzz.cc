// read_model() with a file that holds anything: a model file, a config.json, a short description.
// What is accepted is written and read again.
#include <string_view>

#include "base/check.h"
#include "plan/model/model_file.h"
#include "plan/model/model_writer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace corro;
  const auto model = plan::read_model({reinterpret_cast<const char*>(data), size}, "m");
  if (!model.ok()) {
    CORRO_CHECK(model.status().message().starts_with("m:"), model.status().message());
    CORRO_CHECK(model.status().message().find('\n') == std::string::npos, model.status().message());
    return 0;
  }
  CORRO_CHECK(plan::layer_count(*model) <= plan::kMostLayers);
  CORRO_CHECK(plan::parameter_count(*model) <= 2'000'000'000'000'000'000U);
  CORRO_CHECK(plan::forward_flops(*model) >= 0);
  const auto text = plan::write_model(*model);
  CORRO_CHECK(text.ok(), text.status().message());
  const auto again = plan::read_model(*text, "again");
  CORRO_CHECK(again.ok() && *again == *model, *text);
  return 0;
}
