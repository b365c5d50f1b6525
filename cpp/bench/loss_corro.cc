// loss_corro: how long after a rank's kill -9 each survivor's allreduce raises, as one JSON line of
// each survivor. Needs at least two ranks; the last one dies, and leaves two forked children behind
// that hold copies of its descriptors, as data loaders do.
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "bench/run_op.h"
#include "corro/corro.h"

namespace {

constexpr int64_t kNotice = 50'000'000;  // Nanoseconds between saying when and dying.

int64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);  // One clock for all processes of a host.
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

void fork_child() {
  constexpr unsigned kSeconds = 10;  // A bound: the launcher ends it before that.
  if (fork() != 0) return;
  sleep(kSeconds);
  _exit(0);
}

/// The maximum over all ranks.
corro_code agree(corro_engine* engine, int64_t& value, corro_error& error) {
  corro_op op = {};
  op.struct_size = sizeof op;
  op.kind = CORRO_ALLREDUCE;
  op.dtype = CORRO_I64;
  op.reduce_op = CORRO_MAX;
  op.input = op.output = &value;
  op.count = 1;
  return corro::bench::run_op(engine, op, &error);
}

}  // namespace

int main() {
  signal(SIGTERM, SIG_IGN);  // The launcher asks survivors to stop: not before they have printed.
  corro_error error = {};
  corro_engine* engine = nullptr;
  corro_options options = {};
  options.struct_size = sizeof options;
  int64_t death = now() + kNotice;
  if (corro_engine_create(&options, &engine, &error) != CORRO_OK ||
      agree(engine, death, error) != CORRO_OK) {
    std::fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  const int last = corro_engine_size(engine) - 1;
  if (corro_engine_rank(engine) == last) {
    fork_child();
    fork_child();
    while (now() < death) usleep(100);
    kill(getpid(), SIGKILL);
  }
  const corro_code code = agree(engine, death, error);
  const double us = static_cast<double>(now() - death) / 1e3;
  if (code != CORRO_UNAVAILABLE || error.rank != last) {
    std::fprintf(stderr, "not named: code %d, rank %d: %s\n", code, error.rank, error.message);
    return 1;
  }
  std::printf("{\"bytes\": 0, \"min_us\": %.1f, \"median_us\": %.1f}\n", us, us);
  std::fflush(stdout);
  _exit(0);
}
