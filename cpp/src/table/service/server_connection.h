// ServerConnection: one worker's connection, at the server: its handshake, its messages, and what
// is still to be sent.
//
//   strange   over TCP both sides prove that they know the job's secret. It has two seconds
//   known     whole messages are taken, and answers are queued
//   closed    it broke, or sent what no worker sends. Nothing else happens to it
//
// While more than kMostUnsent bytes are queued nothing is read: a worker that does not take its
// answers gets no more of them.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "io/fd.h"
#include "table/service/messages.h"
#include "wire/handshake.h"

namespace corro::table {

/// Loop-confined. Its caller watches the descriptor.
class ServerConnection {
 public:
  static constexpr size_t kMostUnsent = size_t{64} << 20U;

  ServerConnection(io::Fd fd, const wire::HandshakeIdentity& identity, const wire::Secret& secret,
                   Time accepted)
      : fd_(std::move(fd)), handshake_(std::in_place, identity, secret), accepted_(accepted) {}

  struct Message {
    Header header;
    Bytes body;
  };
  /// Reads what has arrived. None: there is no whole message yet. Fails once the connection is
  /// over, with the reason.
  [[nodiscard]] Result<std::optional<Message>> receive();
  void send(Bytes message);
  /// Sends what the socket takes. Fails once the connection is over.
  [[nodiscard]] Status flush();

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool is_known() const { return !handshake_.has_value(); }
  /// It is known, and is for something else than tables: release() gives it away.
  [[nodiscard]] bool is_for_sums() const { return is_for_sums_; }
  [[nodiscard]] io::Fd release() { return std::move(fd_); }
  [[nodiscard]] Time accepted() const { return accepted_; }
  /// Of the worker; -1 until it is known.
  [[nodiscard]] int32_t rank() const { return rank_; }
  [[nodiscard]] bool has_unsent() const { return !unsent_.empty(); }
  [[nodiscard]] bool reads() const { return unsent_bytes_ <= kMostUnsent; }

 private:
  Status shake_hands();
  /// Fills `into`; false: not all of it has come.
  Result<bool> fill(std::span<std::byte> into, size_t& filled);

  io::Fd fd_;
  std::optional<wire::ServerHandshake> handshake_;
  Time accepted_;
  int32_t rank_ = -1;
  bool is_for_sums_ = false;
  std::array<std::byte, kHeaderBytes> raw_header_{};
  size_t header_filled_ = 0;
  std::optional<Message> arriving_;
  size_t body_filled_ = 0;
  std::deque<Bytes> unsent_;
  size_t first_sent_ = 0;  ///< Bytes of the first one that were sent.
  size_t unsent_bytes_ = 0;
};

}  // namespace corro::table
