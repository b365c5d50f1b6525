// Surveyor: answers what a commander asks about this host: what there is (SURVEY, EXAMINE), which
// addresses of other hosts lead to them (PROBE), what time it is, and how fast a way is (MEASURE).
#pragma once

#include <functional>
#include <memory>

#include "agent/messages.h"
#include "agent/routes.h"
#include "agent/speed_test.h"
#include "io/loop.h"

namespace corro::agent {

/// Loop-confined. `loop` outlives it.
class Surveyor {
 public:
  /// `say` is for the commander.
  Surveyor(io::Loop& loop, std::function<void(MessageBody)> say)
      : loop_(loop), say_(std::move(say)) {}
  Surveyor(const Surveyor&) = delete;
  Surveyor& operator=(const Surveyor&) = delete;
  ~Surveyor();

  void hear(const Survey& survey);
  void hear(const Probe& probe);
  void hear(const Examine& examine);
  void hear(const ReadClock& read);
  void hear(const Measure& measure);
  /// Whatever is not asked of it.
  void hear(const auto& /*other*/) {}

  /// Says what is decided, or late.
  void tick(Time now);
  /// When tick() has something to do, if nothing happens before.
  [[nodiscard]] Time due() const;
  /// SURVEY was asked: there are other hosts.
  [[nodiscard]] bool has_surveyed() const { return routes_ != nullptr; }
  /// Ranks come now: nobody has to reach this host for a probe any more, until the next SURVEY.
  void close_routes();

 private:
  Status open_routes();
  Status open_speed_server(const SpeedKey& key);
  void end_probe(Time now);
  void end_speed_test(Time now);

  io::Loop& loop_;
  std::function<void(MessageBody)> say_;
  std::unique_ptr<Routes> routes_;  ///< From SURVEY or EXAMINE on.
  bool closed_ = false;             ///< Nobody can reach them any more.
  Time probe_until_ = Time::never();
  std::unique_ptr<SpeedServer> speed_server_;  ///< From EXAMINE on.
  std::unique_ptr<SpeedTest> speed_test_;      ///< From MEASURE to MEASURED.
};

}  // namespace corro::agent
