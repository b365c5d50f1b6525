// Bootstrap: how ranks find each other before they have connections: a key-value store that all
// ranks reach. Implementations: AgentBootstrap (the launcher's socket), DirectoryBootstrap (a
// shared directory), StoreBootstrap (a torch Store or anything with put and get). One conformance
// suite: bootstrap_conformance.h.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"

namespace corro::wire {

/// The job's 256-bit secret. Never printed, never in argv.
using Secret = std::array<std::byte, 32>;

inline constexpr size_t kMaxBootstrapKey = 128;
inline constexpr size_t kMaxBootstrapValue = 4096;

/// INVALID_ARGUMENT unless the key has 1 to kMaxBootstrapKey bytes.
[[nodiscard]] Status check_bootstrap_key(std::string_view key);
/// Checks the key, and that the value has at most kMaxBootstrapValue bytes.
[[nodiscard]] Status check_bootstrap_put(std::string_view key, BytesView value);

/// Externally synchronized; used by the thread that creates the engine. Keys of one job are written
/// once; "JOB/what/R" by rank R alone.
class Bootstrap {
 public:
  virtual ~Bootstrap() = default;
  /// Stores a value; ALREADY_EXISTS if the key has another value.
  [[nodiscard]] virtual Status put(std::string_view key, BytesView value) = 0;
  /// Blocks until the key exists; DEADLINE_EXCEEDED at the deadline (monotonic_now()'s clock),
  /// CANCELLED when interrupted, NOT_FOUND where it is known that nobody will write it: then the
  /// message is what has become of its rank, and nothing else.
  [[nodiscard]] virtual Result<Bytes> get(std::string_view key, Time deadline) = 0;
  /// The job's secret if this bootstrap hands one out (the agent does), else nullopt: then
  /// CORRO_SECRET_FILE, else one host over Unix sockets with SO_PEERCRED, else refuse.
  [[nodiscard]] virtual std::optional<Secret> secret() const = 0;
  /// Whether the caller has been interrupted: asked on its thread, several times a second while
  /// get() waits.
  virtual void set_interrupted(std::function<bool()> asked) { interrupted_ = std::move(asked); }
  /// CANCELLED once the caller has been interrupted.
  [[nodiscard]] Status check_interrupted() const;
  /// This rank has joined: it asks for nothing more.
  virtual void joined() {}
  /// In a forked child: closes its descriptors without a word. Nothing else may be called after it.
  virtual void abandon_in_child() {}

 private:
  std::function<bool()> interrupted_;
};

/// How long a wait goes on before it looks whether it was interrupted.
inline constexpr Duration kInterruptPause = std::chrono::milliseconds(100);

}  // namespace corro::wire
