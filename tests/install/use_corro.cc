// The same header from C++: what a wrong rank gives is an error with a message, not a crash.
#include <corro/corro.h>

#include <cstdio>
#include <cstring>

int main() {
  corro_options options{};
  options.struct_size = sizeof options;
  options.has_rank = 1;
  options.rank = 5;
  options.size = 2;
  corro_engine* engine = nullptr;
  corro_error error{};
  const corro_code code = corro_engine_create(&options, &engine, &error);
  std::printf("corro %s from C++: code %d: %s\n", corro_version(), code, error.message);
  return code != CORRO_OK && engine == nullptr && std::strlen(error.message) > 0 ? 0 : 1;
}
