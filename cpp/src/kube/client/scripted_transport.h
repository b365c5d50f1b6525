// For tests: a server that answers what it was told to, and time that only the test moves.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/guarded.h"
#include "base/stop.h"
#include "kube/client/client.h"
#include "kube/client/transport.h"

namespace corro::kube {

struct ScriptedAnswer {
  int status = 200;  ///< 0: no answer.
  Headers headers = {};
  std::vector<std::string> pieces = {};
  Status end = {};       ///< After the pieces.
  bool hangs = false;    ///< After the pieces: until the stop.
  bool was_sent = true;  ///< If there is no answer: whether the request has left.
  /// Happens before the answer; a stop that it requests cuts the exchange off.
  std::function<void()> meanwhile = {};
};

/// Shared by the transport and its test. Thread-safe.
struct Script {
  Guarded<std::deque<ScriptedAnswer>> answers;
  Guarded<std::vector<Request>> requests;

  void add(ScriptedAnswer answer) { answers.lock()->push_back(std::move(answer)); }
  [[nodiscard]] std::vector<Request> asked() { return *requests.lock(); }
};

/// Gives the script's answers in their order, then UNAVAILABLE.
class ScriptedTransport final : public Transport {
 public:
  explicit ScriptedTransport(std::shared_ptr<Script> script) : script_(std::move(script)) {}

  [[nodiscard]] Exchanged exchange(const Request& request, const ExchangeLimits& /*limits*/,
                                   const std::stop_token& stop, const Receive& receive) override {
    script_->requests.lock()->push_back(request);
    ScriptedAnswer answer;
    {
      auto answers = script_->answers.lock();
      if (answers->empty()) return {{Code::kUnavailable, "the script is over"}, true};
      answer = std::move(answers->front());
      answers->pop_front();
    }
    if (answer.meanwhile) {
      answer.meanwhile();
      if (stop.stop_requested()) return {{Code::kCancelled, "stopped"}, true};
    }
    if (answer.status == 0) return {answer.end, answer.was_sent};
    const Head head{answer.status, answer.headers};
    Status status = receive(head, {});
    for (const std::string& piece : answer.pieces) {
      if (status.ok()) status = receive(head, piece);
    }
    if (!status.ok()) return {status, true};
    if (!answer.hangs) return {answer.end, true};
    script_->requests.notify_all();
    while (!wait_for_stop(stop, std::chrono::hours(1))) {
    }
    return {{Code::kCancelled, "stopped"}, true};
  }
  /// As exchange(): no answer of the script is 101.
  [[nodiscard]] Exchanged upgrade(const Request& request, const ExchangeLimits& limits,
                                  const std::stop_token& stop, const Receive& receive,
                                  std::unique_ptr<io::ByteStream>& /*stream*/) override {
    return exchange(request, limits, stop, receive);
  }

 private:
  const std::shared_ptr<Script> script_;  ///< Shared with the test.
};

/// Waits end at once and move the clock. `random` is a constant. Externally synchronized.
struct VirtualSurroundings {
  Time now = Time{} + std::chrono::hours(1);
  std::vector<Duration> waits = {};

  [[nodiscard]] Surroundings make() {
    Surroundings made;
    made.now = [this] { return now; };
    made.wall = [this] {
      return UnixTime(std::chrono::duration_cast<std::chrono::microseconds>(now.since_start));
    };
    made.random = [] { return 0.0; };
    made.wait = [this](Duration duration, const std::stop_token& stop) {
      waits.push_back(duration);
      now = now + duration;
      return stop.stop_requested();
    };
    return made;
  }
};

}  // namespace corro::kube
