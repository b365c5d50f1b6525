// idle_corro SECONDS: the CPU time that an idle group costs, as one JSON line of rank 0. Its
// median_us is this process's CPU time for each second of doing nothing.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "bench/run_op.h"
#include "corro/corro.h"

namespace {

double cpu_us() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto us = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_usec);
  };
  return us(usage.ru_utime) + us(usage.ru_stime);
}

}  // namespace

int main(int argc, char** argv) {
  const int seconds = argc > 1 ? std::atoi(argv[1]) : 2;
  corro_error error;
  corro_engine* engine = nullptr;
  corro_options options = {};
  options.struct_size = sizeof options;
  corro_op barrier = {};
  barrier.struct_size = sizeof barrier;
  barrier.kind = CORRO_BARRIER;
  if (corro_engine_create(&options, &engine, &error) != CORRO_OK ||
      corro::bench::run_op(engine, barrier, &error) != CORRO_OK) {
    std::fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  const double before = cpu_us();
  sleep(static_cast<unsigned>(seconds));
  const double each = (cpu_us() - before) / seconds;
  if (corro_engine_rank(engine) == 0)
    std::printf("{\"bytes\": 0, \"min_us\": %.1f, \"median_us\": %.1f}\n", each, each);
  corro_engine_destroy(engine);
}
