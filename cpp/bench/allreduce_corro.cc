// allreduce_corro private|arena|named SECONDS BYTES...: corro's times over its C ABI. `named` is
// private memory, with operations that are submitted by name, as a plug-in of a framework does.
#include <cstring>

#include "bench/measure.h"
#include "bench/run_op.h"
#include "corro/corro.h"

namespace {

void must(corro_code code, const corro_error& error) {
  if (code == CORRO_OK) return;
  std::fprintf(stderr, "%s\n", error.message);
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const bool arena = argc > 1 && std::strcmp(argv[1], "arena") == 0;
  const bool named = argc > 1 && std::strcmp(argv[1], "named") == 0;
  corro_error error;
  corro_engine* engine = nullptr;
  corro_options options = {};
  options.struct_size = sizeof options;
  must(corro_engine_create(&options, &engine, &error), error);
  corro::bench::Peer peer;
  peer.rank = corro_engine_rank(engine);
  peer.size = corro_engine_size(engine);
  peer.allreduce = [&](float* data, size_t count) {
    corro_op op = {};
    op.struct_size = sizeof op;
    op.kind = CORRO_ALLREDUCE;
    op.dtype = CORRO_F32;
    op.reduce_op = CORRO_SUM;
    op.input = data;
    op.output = data;
    op.count = count;
    op.name = named ? "allreduce" : nullptr;
    must(corro::bench::run_op(engine, op, &error, named ? CORRO_NAMED : CORRO_NOW), error);
  };
  peer.allocate = [&](size_t count) {
    const size_t bytes = (count * sizeof(float) + 63) / 64 * 64;
    void* memory = arena ? corro_arena_alloc(engine, bytes, &error) : std::aligned_alloc(64, bytes);
    if (memory == nullptr) must(CORRO_RESOURCE_EXHAUSTED, error);
    return static_cast<float*>(memory);
  };
  peer.release = [&](float* data) { arena ? corro_arena_free(data) : std::free(data); };
  corro::bench::measure(peer, corro::bench::Sizes::parse(argc, argv, 2));
  corro_engine_destroy(engine);
}
