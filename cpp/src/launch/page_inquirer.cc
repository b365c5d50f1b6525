#include "launch/page_inquirer.h"

namespace corro::launch {

Status PageInquirer::ask(dashboard::Inspected what, uint32_t steps) {
  const bool is_trace = what == dashboard::Inspected::kTrace;
  inquiry_.reset();
  CORRO_ASSIGN(inquiry_, is_trace ? Inquiry::create(job_, Question::kTrace, steps)
                                  : Inquiry::create(job_, Question::kStacks));
  return {};
}

Result<std::string> PageInquirer::read() {
  if (!inquiry_) return std::string();
  return inquiry_->read();
}

}  // namespace corro::launch
