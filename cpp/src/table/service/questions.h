// Questions: what a worker has asked one server and has no answer to yet, without sockets.
//
// Questions go out in the order in which they were asked. After begin(), on a connection of which
// the server knows nothing, tables are opened first, and whatever was not answered goes out once
// more, in the same order: for a server a question that it has answered before is no other one
// (served_table.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "table/service/messages.h"

namespace corro::table {

/// What an answer brings, or the server's refusal. The body is the callee's only while it runs.
using Answer = std::function<void(const Status& status, MessageKind kind, BytesView body)>;

/// Loop-confined.
class Questions {
 public:
  /// Opens a table now, and again on each new connection. A number that was given before is
  /// this table's from now on.
  void open(uint16_t table, const Bytes& body, Answer answer);
  /// Asks with a whole message, which gets the next request's number. `answer` is called once, or never
  /// after forget(). Null: the answer is of no interest.
  void ask(Bytes message, Answer answer);
  /// Tells the server that no rank uses another one any more. forget() does not forget that.
  void tell_lost(uint32_t server);
  /// Nobody waits for answers any more; tables are opened all the same. No question may be half sent.
  void forget();

  /// There is a new connection.
  void begin();
  /// The next message to be sent on this connection; null: all were.
  [[nodiscard]] const Bytes* next() const {
    return sent_ < asked_.size() ? &asked_[sent_].message : nullptr;
  }
  /// It was sent.
  void sent() { ++sent_; }
  /// Takes what has arrived. False: it answers no question that was sent.
  bool take(const Header& header, BytesView body);
  [[nodiscard]] bool empty() const { return asked_.empty(); }

 private:
  struct Question {
    uint32_t request = 0;
    Bytes message;
    Answer answer;
  };
  struct OpenTable {
    uint16_t table = 0;
    Bytes body;
  };
  [[nodiscard]] Question question(Bytes message, Answer answer);

  std::vector<OpenTable> open_;
  std::vector<uint32_t> lost_;  ///< Servers of which this one is told.
  std::deque<Question> asked_;  ///< In the order in which they were asked.
  size_t sent_ = 0;             ///< Of these, on this connection.
  uint32_t last_request_ = 0;
};

}  // namespace corro::table
