#include "launch/showroom.h"

#include "launch/page_inquirer.h"
#include "wire/digest.h"
#include "wire/secret.h"

namespace corro::launch {

Result<Showroom> Showroom::create(std::string option, const std::string& wanted) {
  Showroom made;
  made.token_ = wire::to_hex(wire::random_secret());
  if (!wanted.empty()) {
    CORRO_ASSIGN(made.address_, dashboard::parse_address(option, wanted));
  }
  made.is_wanted_ = !wanted.empty();
  made.option_ = std::move(option);
  return made;
}

Result<std::unique_ptr<dashboard::Dashboard>> Showroom::open(const dashboard::SharedBoard& board,
                                                             const LaunchPlan& plan) {
  if (!is_wanted_) return std::unique_ptr<dashboard::Dashboard>();
  return open_here(board, plan);
}

Result<std::unique_ptr<dashboard::Dashboard>> Showroom::open_here(
    const dashboard::SharedBoard& board, const LaunchPlan& plan) {
  auto opened =
      dashboard::Dashboard::open({.address = address_, .token = token_, .logs = plan.job.log_dir},
                                 board, std::make_unique<PageInquirer>(own_job(plan.job.job_id)));
  if (!opened.ok()) return opened.status().with_context(option_ + " " + address_);
  address_ = (*opened)->address();
  return opened;
}

Result<std::unique_ptr<dashboard::Dashboard>> Showroom::open_for_asker(
    const dashboard::SharedBoard& board, const LaunchPlan& plan) {
  if (!is_wanted_) address_ = "127.0.0.1:0";
  return open_here(board, plan);
}

Result<std::unique_ptr<dashboard::Replay>> Showroom::open_past(const std::string& logs,
                                                               dashboard::History history) {
  auto opened = dashboard::Replay::open({.address = address_, .token = token_, .logs = logs},
                                        std::move(history));
  if (!opened.ok()) return opened.status().with_context(option_ + " " + address_);
  address_ = (*opened)->address();
  return opened;
}

std::string Showroom::address(const std::string& host) const {
  return address_.empty() ? "" : dashboard::address_for_people(address_, token_, host);
}

std::string Showroom::take_news(const std::string& host) {
  if (!is_wanted_ || std::exchange(is_told_, true)) return "";
  return address(host);
}

}  // namespace corro::launch
