// Commander: whoever commands this agent, at the other end of a connection. That is there from the
// beginning on, and the agent ends with it; or the agent dials it, and another one when it is gone:
//
//   pausing    nobody is there. A moment later the next address is dialled
//   greeting   HELLO was said; a coordinator that does not say LEAD in time is not there
//   met        it commands
//
// While nobody has been met, what ranks print is kept, the last megabyte of it. What else is said
// is not: the next one is told all of it once more (agent_course.h).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/message_pipe.h"

namespace corro::agent {

/// What a host has for its ranks to run, in the directory of its agent.
struct Program {
  std::string path;                    ///< "": nothing.
  std::vector<std::string> arguments;  ///< argv, the program's name first.
};

/// Between two dials, and after one that was refused.
inline constexpr Duration kDialPause = std::chrono::milliseconds(250);
inline constexpr Duration kRefusedPause = std::chrono::seconds(1);

/// Loop-confined.
class Commander {
 public:
  /// How a commander is found.
  struct Dialling {
    std::vector<std::string> addresses;
    /// Opens a connection to the address of this number; it may not be made yet.
    std::function<Result<MessagePipe>(size_t address)> dial;
    /// A line for people: what has become of the commander.
    std::function<void(const std::string& line)> note;
    std::string host;                    ///< What this one is called.
    int slots = 1;                       ///< That it offers.
    Duration patience{};                 ///< Without a commander, until everything is ended.
    Program program = {};                ///< What ranks run where START names none.
    std::string called = "coordinator";  ///< What people call a commander.
    /// Told why, in the end, if nobody has led for `patience`; may be empty.
    std::function<void(const std::string& why)> on_give_up = {};
  };

  explicit Commander(MessagePipe pipe) : pipe_(std::move(pipe)), met_(true) {}
  explicit Commander(Dialling how) : how_(std::move(how)) {}

  /// None: it is there from the beginning on.
  [[nodiscard]] const std::optional<Dialling>& dialling() const { return how_; }
  /// It commands now.
  [[nodiscard]] bool met() const { return met_; }
  /// Its connection has ended, or there is none.
  [[nodiscard]] bool ended() const { return !pipe_ || pipe_->ended(); }

  /// Has the handler called when it says something.
  Status watch(io::Loop& loop, io::Loop::Handler handler);
  /// Dials if nobody is there, and says `hello`; gives up one that does not answer.
  void tick(const Message& hello, Time now);
  /// When tick() has something to do.
  [[nodiscard]] Time due() const;
  /// It has said LEAD.
  void meet(uint64_t term);
  /// A line for people; for an agent that dials.
  void say(const std::string& line) const { how_->note(line); }
  /// Says why nobody is there.
  void remind() const;
  /// Nobody has led for so long that everything is ended.
  void give_up();
  /// Sends what was kept; returns how many bytes of output that are.
  size_t send_kept();
  /// Nothing is heard of this one any more; `why` is for people.
  void drop(const std::string& why, Time now);
  /// It does not take this agent. `waits`: it will later, so it is dialled again.
  void refuse(const std::string& why, bool waits, Time now);
  /// Closes the own descriptors alone.
  void close() { pipe_.reset(); }

  void send(const Message& message);
  /// Reads what take() gives. Fails where nothing can be read any more.
  Status read();
  [[nodiscard]] std::optional<Message> take() { return pipe_ ? pipe_->take() : std::nullopt; }
  [[nodiscard]] bool unsent() const { return pipe_ && pipe_->unsent(); }
  void flush_on(io::Loop& loop) {
    if (pipe_) pipe_->flush_on(loop);
  }
  /// Why the connection has ended.
  [[nodiscard]] std::string why() const;

 private:
  void dial(const Message& hello, Time now);
  void hang_up(const std::string& why);
  void keep(const Message& message);
  void note(const std::string& line);
  [[nodiscard]] std::string all_addresses() const;
  [[nodiscard]] size_t address() const { return dials_ % how_->addresses.size(); }

  std::optional<MessagePipe> pipe_;
  const std::optional<Dialling> how_;
  io::Loop* loop_ = nullptr;
  io::Loop::Handler handler_;
  bool met_ = false;
  bool was_met_ = false;
  std::string lost_by_ = "it does not answer";  ///< Why the last one is not there.
  Time due_{};                           ///< Of the next dialling, or until LEAD has to come.
  size_t dials_ = 0;                     ///< That were given up.
  std::map<size_t, std::string> noted_;  ///< Said last, by address.
  std::deque<Message> kept_;             ///< OUTPUT and OUTPUT_END that nobody has got.
  size_t kept_bytes_ = 0;
  size_t lost_bytes_ = 0;  ///< That were too many.
};

}  // namespace corro::agent
