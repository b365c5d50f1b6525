#include "table/service/server_search.h"

#include <chrono>
#include <utility>

#include "wire/server_number.h"

namespace corro::table {
namespace {

constexpr Duration kConnectTime = std::chrono::milliseconds(100);
/// The agent answers at once what it knows; else the next look finds the answer.
constexpr Duration kBriefly = std::chrono::milliseconds(2);

}  // namespace

Result<std::optional<io::SocketAddress>> ServerSearch::find(uint32_t server) {
  const std::optional<io::SocketAddress> none;
  if (!connection_) {
    auto made = wire::AgentBootstrap::connect(
        {.name = agent_, .rank = wire::kReader, .deadline = monotonic_now() + kConnectTime});
    if (!made.ok()) return none;  // It is busy, or gone: then the job ends.
    connection_ = std::move(made).value();
  }
  const std::string key = wire::server_key(connection_->job(), static_cast<int32_t>(server));
  const auto found = connection_->get(key, monotonic_now() + kBriefly);
  if (found.status().code() == Code::kNotFound) return found.status();
  if (!found.ok()) {
    if (found.status().code() != Code::kDeadlineExceeded) connection_.reset();
    return none;
  }
  const std::string text(reinterpret_cast<const char*>(found->data()), found->size());
  CORRO_ASSIGN(const io::SocketAddress address, io::SocketAddress::parse(text));
  return std::optional(address);
}

}  // namespace corro::table
