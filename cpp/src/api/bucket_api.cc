// Buckets of corro.h over runtime::Buckets. No logic: convert, check, catch.
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "api/codec.h"
#include "api/handles.h"
#include "runtime/buckets.h"

using corro::Code;
using corro::Duration;
using corro::Result;
using corro::Status;
using corro::api::check_alive;
using corro::api::guarded;
using corro::api::read_struct;
using corro::runtime::Buckets;

struct corro_bucket_set {
  corro_engine* engine;
  std::unique_ptr<Buckets> buckets;
};

namespace {

Status check_set(const corro_bucket_set* set) {
  if (set == nullptr) return {Code::kInvalidArgument, "there is no bucket set"};
  return check_alive(set->engine);
}

Status check_part_number(const corro_bucket_set* set, uint32_t part) {
  const uint32_t parts = set->buckets->set().parts();
  if (part < parts) return {};
  return {Code::kInvalidArgument, fmt::format("there is no part {} of {}", part, parts)};
}

Result<corro::runtime::BucketPart> read_part(const corro_bucket_part* given, size_t index) {
  corro_bucket_part part;
  CORRO_TRY(read_struct(given, part));
  std::string name = part.name == nullptr ? std::to_string(index) : part.name;
  if (part.dtype >= corro::kDTypeCount) {
    return Status(Code::kInvalidArgument,
                  fmt::format("bucket part \"{}\": unknown dtype {}", name, part.dtype));
  }
  return corro::runtime::BucketPart{.name = std::move(name),
                                    .bucket = part.bucket,
                                    .dtype = static_cast<corro::DType>(part.dtype),
                                    .data = static_cast<std::byte*>(part.data),
                                    .count = part.count};
}

Result<corro::runtime::BucketOptions> read_options(const corro_bucket_options* given) {
  corro_bucket_options options;
  CORRO_TRY(read_struct(given, options));
  if (options.reduce_op >= corro::kReduceOpCount)
    return Status(Code::kInvalidArgument, fmt::format("unknown reduce_op {}", options.reduce_op));
  const bool as_given = options.has_scales != 0;
  corro::runtime::BucketOptions read{
      .reduce_op = static_cast<corro::ReduceOp>(options.reduce_op),
      .prescale = options.prescale == 0 && !as_given ? 1 : options.prescale,
      .postscale = options.postscale == 0 && !as_given ? 1 : options.postscale,
      .passes = options.passes == 0 ? 1 : options.passes,
      .timeout = Duration(options.timeout_ns)};
  CORRO_ASSIGN(read.codec, corro::api::read_codec(options.codec));
  return read;
}

Status create(corro_group* group, const corro_bucket_part* given, size_t n,
              const corro_bucket_options* options, corro_bucket_set** set) {
  *set = nullptr;
  CORRO_TRY(corro::api::check_group(group));
  std::vector<corro::runtime::BucketPart> parts;
  for (size_t i = 0; i < n; ++i) {
    CORRO_ASSIGN(auto part, read_part(given + i, i));
    parts.push_back(std::move(part));
  }
  CORRO_ASSIGN(const auto read, read_options(options));
  auto made = std::make_unique<corro_bucket_set>(group->engine, nullptr);
  Status status;
  group->engine->driver().call([&](corro::runtime::Engine& engine) {
    auto buckets = Buckets::create(engine, *group->group, parts, read);
    status = buckets.status();
    if (buckets.ok()) made->buckets = std::move(buckets).value();
  });
  CORRO_TRY(status);
  *set = made.release();
  return {};
}

}  // namespace

extern "C" {

corro_code corro_bucket_create(corro_group* group, const corro_bucket_part* parts, size_t n,
                               const corro_bucket_options* options, corro_bucket_set** set,
                               corro_error* error) {
  return guarded(error, [&] { return create(group, parts, n, options, set); });
}

corro_code corro_bucket_ready(corro_bucket_set* set, uint32_t part, corro_error* error) {
  return guarded(error, [&]() -> Status {
    CORRO_TRY(check_set(set));
    CORRO_TRY(check_part_number(set, part));
    using Ready = corro::runtime::BucketSet::Ready;
    const Ready result = set->engine->driver().ready(*set->buckets, part);
    return result == Ready::kTooOften ? set->buckets->refusal(part) : Status();
  });
}

corro_code corro_bucket_close(corro_bucket_set* set, uint64_t generation, uint64_t word,
                              corro_error* error) {
  return guarded(error, [&]() -> Status {
    CORRO_TRY(check_set(set));
    return set->engine->driver().close(*set->buckets, generation, word);
  });
}

corro_code corro_bucket_wait(corro_bucket_set* set, uint32_t bucket, int64_t timeout_ns,
                             corro_error* error) {
  return guarded(error, [&]() -> Status {
    CORRO_TRY(check_set(set));
    const uint32_t buckets = set->buckets->set().buckets();
    if (bucket >= buckets && bucket != CORRO_ALL_BUCKETS) {
      return {Code::kInvalidArgument, fmt::format("there is no bucket {} of {}", bucket, buckets)};
    }
    const Duration timeout = timeout_ns < 0 ? Duration(-1) : Duration(timeout_ns);
    return set->engine->driver().wait(*set->buckets, bucket, timeout);
  });
}

corro_code corro_bucket_next(corro_bucket_set* set, corro_error* error) {
  return guarded(error, [&]() -> Status {
    CORRO_TRY(check_set(set));
    return set->buckets->next();
  });
}

corro_code corro_bucket_join(corro_bucket_set* set, corro_error* error) {
  return guarded(error, [&]() -> Status {
    CORRO_TRY(check_set(set));
    return set->engine->driver().join(*set->buckets);
  });
}

uint64_t corro_bucket_generation(const corro_bucket_set* set) {
  return set->buckets->set().generation();
}

uint32_t corro_bucket_came(const corro_bucket_set* set, uint32_t part) {
  return check_part_number(set, part).ok() ? set->buckets->set().came(part) : 0;
}

int corro_bucket_came_anywhere(const corro_bucket_set* set, uint32_t part) {
  return check_part_number(set, part).ok() && set->buckets->came_anywhere(part) ? 1 : 0;
}

void corro_bucket_destroy(corro_bucket_set* set) {
  if (set == nullptr) return;
  if (set->engine->driver().abandoned()) return;  // In a forked child its memory is let go.
  (void)guarded(nullptr, [set]() -> Status {
    set->engine->driver().call(
        [set](corro::runtime::Engine& engine) { set->buckets->destroy(engine); });
    return {};
  });
  delete set;
}

}  // extern "C"
