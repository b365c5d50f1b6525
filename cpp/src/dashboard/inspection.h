// Inspection: what whoever looks wants to know of the ranks beside what they show by themselves: their
// Python stacks, and what their flight recorders have of their last steps. They are asked by the same
// question as `corro stacks` and `corro trace` ask.
//
//   inspection.ask(Inspected::kStacks, 1, now, wall_now());   // POST
//   inspection.look(now);                                     // at any time, such as when a page asks
//   inspection.last(Inspected::kStacks).text;
//
// One question at a time, of all who look: a second one while the ranks are asked changes nothing, and
// who asks sees the answer to the first. Of each kind the last answer is kept.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "base/unix_time.h"

namespace corro::dashboard {

enum class Inspected : uint8_t { kStacks, kTrace };

/// The way to the job's ranks. Externally synchronized; blocks for a moment at most.
class Inquirer {
 public:
  virtual ~Inquirer() = default;
  /// Asks, and forgets what was asked before. `steps`: of a trace, above 0.
  virtual Status ask(Inspected what, uint32_t steps) = 0;
  /// The answer, once all of it is there, and "" until then; or why there is none.
  virtual Result<std::string> read() = 0;
  /// So many bytes of the answer are there.
  [[nodiscard]] virtual size_t received() const = 0;
};

/// Externally synchronized; blocks as its Inquirer does.
class Inspection {
 public:
  /// Null: there are no ranks to ask.
  explicit Inspection(std::unique_ptr<Inquirer> inquirer) : inquirer_(std::move(inquirer)) {}

  /// The last answer of a kind.
  struct Answer {
    std::optional<UnixTime> asked = {};  ///< When the ranks were asked for it; none: never.
    std::string text = {};
    std::string why = {};  ///< Why the last question has none; "": it has one, or nobody has asked.
  };

  /// Asks the ranks, unless they are asked already. FAILED_PRECONDITION if that is for the other kind,
  /// or there are none to ask.
  Status ask(Inspected what, uint32_t steps, Time now, UnixTime clock);
  /// Takes the answer if it has come; a question is over after ten seconds in which nothing came.
  void look(Time now);

  [[nodiscard]] bool is_asking(Inspected what) const { return asking_ == what; }
  [[nodiscard]] const Answer& last(Inspected what) const {
    return answers_[static_cast<size_t>(what)];
  }

 private:
  void end(std::string text, std::string why);

  std::unique_ptr<Inquirer> inquirer_;
  std::optional<Inspected> asking_;
  UnixTime asked_{};
  Time give_up_{};
  size_t received_ = 0;
  std::array<Answer, 2> answers_;  ///< Of Inspected.
};

}  // namespace corro::dashboard
