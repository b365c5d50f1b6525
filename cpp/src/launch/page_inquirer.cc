#include "launch/page_inquirer.h"

#include <poll.h>

#include "io/socket.h"

namespace corro::launch {
namespace {

constexpr Duration kMoment = std::chrono::milliseconds(100);

}  // namespace

Status PageInquirer::ask(dashboard::Inspected what, uint32_t steps) {
  const bool is_trace = what == dashboard::Inspected::kTrace;
  inquiry_.reset();
  CORRO_ASSIGN(inquiry_, is_trace ? Inquiry::create(job_, Question::kTrace, steps)
                                  : Inquiry::create(job_, Question::kStacks));
  return {};
}

/// A socket keeps some of a long answer only: while it comes, a moment is waited for more.
Result<std::string> PageInquirer::read() {
  if (!inquiry_) return std::string();
  const Time until = monotonic_now() + kMoment;
  auto text = inquiry_->read();
  while (text.ok() && text->empty() && inquiry_->received() > 0 &&
         io::wait_ready(inquiry_->poll_fd(), POLLIN, until))
    text = inquiry_->read();
  return text;
}

}  // namespace corro::launch
