#include "waiting.h"

#include <thread>

namespace corro::plugin {
namespace {

struct OnItsWay {
  std::unique_ptr<Waiting> waiting;
  corro_work* work;
};

/// Never destroyed, as its thread never ends: works may end while the process exits.
corro_queue* queue() {
  static corro_queue* const kQueue = [] {
    corro_queue* made = nullptr;
    (void)corro_queue_create(&made, nullptr);
    return made;
  }();
  return kQueue;
}

void run() {
  while (true) {
    uint64_t cookie = 0;
    if (corro_queue_next(queue(), &cookie, -1) != CORRO_OK) continue;
    const std::unique_ptr<OnItsWay> one(reinterpret_cast<OnItsWay*>(cookie));
    wait_here(*one->waiting, one->work);
  }
}

}  // namespace

void wait_on_thread(std::unique_ptr<Waiting> waiting, corro_work* work) {
  static const bool kRuns = [] {
    std::thread(&run).detach();
    return true;
  }();
  (void)kRuns;
  auto one = std::make_unique<OnItsWay>(OnItsWay{std::move(waiting), work});
  corro_work_notify(work, queue(), reinterpret_cast<uint64_t>(one.release()));
}

void wait_here(Waiting& waiting, corro_work* work) {
  corro_error error;
  const corro_code code = corro_work_wait(work, -1, &error);
  corro_work_release(work);
  waiting.over(code, error);
}

}  // namespace corro::plugin
