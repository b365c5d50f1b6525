// TlsReception: a coordinator's listener for the agents of its job.
//
//   a connection  proves the job's secret within 10 s, and says HELLO; or it is closed
//                 whoever says HELLO for another corro, or another host than it has proved to be,
//                 is told so
//
// How it is proved: secure/tls_stream.h.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "io/socket.h"
#include "launch/reception.h"
#include "secure/tls_stream.h"

namespace corro::coordinator {

/// Loop-confined.
class TlsReception final : public launch::Reception {
 public:
  struct Options {
    io::SocketAddress listen;
    secure::Tls::FindKey find_key;  ///< Of the agents; they are called like their hosts.
    std::string version;            ///< Of corro: agents have the same.
  };
  /// Listens. What dials is taken from watch() on.
  static Result<std::unique_ptr<TlsReception>> create(const Options& options);
  /// Where it listens.
  [[nodiscard]] std::string address() const;

  Status watch(io::Loop& loop, Listener listener) override;
  void tick(Time now) override;
  [[nodiscard]] Time due() const override;
  void refuse(Dialled dialled, const Status& why) override;

 private:
  struct Caller {
    agent::MessagePipe pipe;
    secure::TlsStream* tls;  ///< That of the pipe.
    std::string from;        ///< Its address, for people.
    Time until{};            ///< Then it is closed.
    bool refused = false;    ///< It gets what was said, and is closed.
  };

  TlsReception(io::Fd listener, secure::Tls tls, std::string version)
      : socket_(std::move(listener)), tls_(std::move(tls)), version_(std::move(version)) {}
  void accept_some();
  void read(uint64_t number);
  void close(uint64_t number);
  [[nodiscard]] Status check(const Caller& caller, const agent::Hello& hello) const;
  void note_refusal(const std::string& from, const std::string& why);

  io::Fd socket_;
  secure::Tls tls_;
  const std::string version_;
  io::Loop* loop_ = nullptr;
  Listener listener_;
  std::map<uint64_t, Caller> callers_;
  std::set<std::pair<std::string, std::string>> refusals_;  ///< That people were told of.
  uint64_t last_ = 0;
};

}  // namespace corro::coordinator
