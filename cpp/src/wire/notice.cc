#include "wire/notice.h"

#include <poll.h>

#include <span>

#include "base/clock.h"
#include "io/socket.h"
#include "wire/agent_bootstrap.h"

namespace corro::wire {
namespace {

constexpr Duration kMostWait = std::chrono::seconds(10);  ///< For the packet to be taken.

}  // namespace

Status report(const std::string& agent, const std::string& member, const Notice& notice) {
  CORRO_ASSIGN(const io::Fd fd, connect_to_agent(agent));
  ByteWriter value;
  value.write(notice.step);
  if (notice.text.size() <= kMaxNoticeText)
    value.write_bytes(std::as_bytes(std::span(notice.text)));
  const Bytes packet = encode_agent_message({.kind = AgentMessageKind::kNotice,
                                             .request = static_cast<uint32_t>(notice.kind),
                                             .key = member,
                                             .value = value.take()});
  for (const Time deadline = monotonic_now() + kMostWait;;) {
    CORRO_ASSIGN(const bool sent, io::send_message(fd.get(), packet));
    if (sent) return {};
    if (!io::wait_ready(fd.get(), POLLOUT, deadline))
      return {Code::kDeadlineExceeded, "the agent takes nothing"};
  }
}

}  // namespace corro::wire
