/* A codec in plain C: numbers from -1 to 1 travel as bytes, by operations and by buckets. Run by
 * `corro run -np 2`. */
#include <corro/corro.h>
#include <math.h>
#include <stdio.h>

enum { kCount = 1000 };
static corro_error error;
static int encoded = 0;

static int fails(corro_code code, const char* what) {
  if (code != CORRO_OK) fprintf(stderr, "%s: %s\n", what, error.message);
  return code != CORRO_OK;
}

static int only_floats(void* context, uint8_t dtype) {
  (void)context;
  return dtype == CORRO_F32;
}

static uint64_t one_byte_each(void* context, uint8_t dtype, uint64_t count) {
  (void)context, (void)dtype;
  return count;
}

static int encode(void* context, uint8_t dtype, const void* from, uint64_t count, void* into) {
  (void)dtype;
  ++*(int*)context;
  for (uint64_t i = 0; i < count; ++i)
    ((int8_t*)into)[i] = (int8_t)lrintf(((const float*)from)[i] * 127);
  return 0;
}

static int decode(void* context, uint8_t dtype, const void* from, uint64_t count, void* into) {
  (void)context, (void)dtype;
  for (uint64_t i = 0; i < count; ++i) ((float*)into)[i] = (float)((const int8_t*)from)[i] / 127;
  return 0;
}

static const corro_codec bytes = {.struct_size = sizeof bytes,
                                  .name = "bytes",
                                  .context = &encoded,
                                  .applies_to = only_floats,
                                  .encoded_bytes = one_byte_each,
                                  .encode = encode,
                                  .decode = decode};

static int is_right(const float* data, const char* what) {
  for (int i = 0; i < kCount; ++i) {
    if (fabsf(data[i] - 0.25F) < 0.01F) continue;
    fprintf(stderr, "%s: element %d is %f, not about 0.25\n", what, i, data[i]);
    return 0;
  }
  return 1;
}

static int run(corro_engine* engine) {
  float data[kCount];
  corro_group* const world = corro_engine_world(engine);
  const float own = corro_engine_rank(engine) == 0 ? 1.0F : -0.5F;
  for (int i = 0; i < kCount; ++i) data[i] = own;
  corro_op op = {.struct_size = sizeof op,
                 .kind = CORRO_ALLREDUCE,
                 .dtype = CORRO_F32,
                 .reduce_op = CORRO_AVERAGE,
                 .input = data,
                 .output = data,
                 .count = kCount,
                 .codec = &bytes};
  corro_work* work = NULL;
  if (fails(corro_submit(world, &op, 1, 0, &work, &error), "submit") ||
      fails(corro_work_wait(work, -1, &error), "wait"))
    return 1;
  corro_work_release(work);
  if (!is_right(data, "allreduce") || encoded != 1) return 1;

  for (int i = 0; i < kCount; ++i) data[i] = own;
  const corro_bucket_part part = {
      .struct_size = sizeof part, .dtype = CORRO_F32, .data = data, .count = kCount};
  const corro_bucket_options options = {
      .struct_size = sizeof options, .reduce_op = CORRO_AVERAGE, .codec = &bytes};
  corro_bucket_set* set = NULL;
  if (fails(corro_bucket_create(world, &part, 1, &options, &set, &error), "create") ||
      fails(corro_bucket_ready(set, 0, &error), "ready") ||
      fails(corro_bucket_close(set, 0, 0, &error), "close") ||
      fails(corro_bucket_wait(set, CORRO_ALL_BUCKETS, -1, &error), "wait for buckets"))
    return 1;
  corro_bucket_destroy(set);
  if (!is_right(data, "buckets") || encoded != 2) return 1;

  /* A name that is taken, a function that is missing, an operation without codecs. */
  corro_codec wrong = bytes;
  op.codec = &wrong;
  wrong.name = "bf16";
  if (corro_submit(world, &op, 1, 0, &work, &error) != CORRO_INVALID_ARGUMENT) return 1;
  wrong = bytes;
  wrong.decode = NULL;
  if (corro_submit(world, &op, 1, 0, &work, &error) != CORRO_INVALID_ARGUMENT) return 1;
  op.codec = corro_cast_codec(CORRO_F16);
  op.kind = CORRO_BROADCAST;
  if (corro_submit(world, &op, 1, 0, &work, &error) != CORRO_INVALID_ARGUMENT) return 1;
  return corro_cast_codec(CORRO_I32) == NULL ? 0 : 1;
}

int main(void) {
  corro_engine* engine = NULL;
  const corro_options options = {.struct_size = sizeof options};
  if (fails(corro_engine_create(&options, &engine, &error), "init")) return 1;
  const int result = corro_engine_size(engine) == 2 ? run(engine) : 1;
  corro_engine_destroy(engine);
  return result;
}
