// Mover: what the holder of the baton does with the engine, and what other threads leave for it.
//
// Any thread posts tasks and works; whoever holds the baton next runs and starts them, in order,
// before it moves the engine. An exception in the middle of a move fails every group: what was half
// done cannot go on, and the other members have to know.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/guarded.h"
#include "base/status.h"
#include "runtime/engine.h"
#include "runtime/watch.h"
#include "runtime/work.h"

namespace corro::runtime {

/// For the holder of the baton, but for what is marked.
class Mover {
 public:
  using Task = std::function<void(Engine&)>;
  /// `watch` is borrowed: it tells who is lost, and makes streams. So are the doorbells, by rank.
  Mover(std::unique_ptr<Engine> engine, Watch& watch, const std::vector<io::Fd>& peer_bells)
      : engine_(std::move(engine)), watch_(watch), peer_bells_(peer_bells) {}

  [[nodiscard]] Engine& engine() { return *engine_; }

  /// Leaves a task, or a work to submit(), for the next holder of the baton. Thread-safe, both.
  void post(Task task) { leave({.task = std::move(task)}); }
  void post(Group& group, std::shared_ptr<WorkState> work) {
    leave({.group = &group, .work = std::move(work)});
  }
  /// Tasks, losses or streams wait. Thread-safe, both.
  [[nodiscard]] bool has_posts() const { return posted_.load(std::memory_order_seq_cst) > 0; }
  [[nodiscard]] bool has_news() const { return has_posts() || watch_.has_news(); }
  /// Something is in flight or waits: the engine may not be left alone.
  [[nodiscard]] bool busy() const { return !engine_->idle() || has_news(); }

  void run_posts();
  /// Gives the engine its new streams, and tells it who is lost.
  void take_news();
  /// The engine may ask who is readable, once that is worth it.
  void ask_readable();
  /// Starts the work; one that cannot start is over with the cause.
  void submit(Group& group, const std::shared_ptr<WorkState>& work);
  /// One look at everything; true if anything moved.
  bool move();
  /// While a caller waits for an operation that has no flight, all others go on, and so do buckets
  /// and what threads compute for plans: the progress thread cannot move them without the baton.
  /// Posts wait: they may submit, and what has no flight yet comes before them.
  void move_flights();
  /// Ends all that the engine does; returns the cause. `why`: what was thrown while it moved.
  Status give_up(const std::exception& why);

 private:
  /// A task, or a work of a group: most are works, which need no memory of their own.
  struct Post {
    Task task = nullptr;
    Group* group = nullptr;
    std::shared_ptr<WorkState> work = nullptr;
  };

  void leave(Post post);
  bool move_engine();

  std::unique_ptr<Engine> engine_;
  Watch& watch_;
  const std::vector<io::Fd>& peer_bells_;
  uint32_t idle_moves_ = 0;          ///< Of move_flights() since its last look at the engine.
  std::atomic<uint32_t> posted_{0};  ///< In posts_.
  Guarded<std::vector<Post>> posts_;
  std::vector<Post> spare_;  ///< Memory for the next ones.
};

}  // namespace corro::runtime
