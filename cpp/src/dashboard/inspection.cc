#include "dashboard/inspection.h"

namespace corro::dashboard {
namespace {

constexpr Duration kAnswerPatience = std::chrono::seconds(10);

}  // namespace

Status Inspection::ask(Inspected what, uint32_t steps, Time now, UnixTime clock) {
  if (inquirer_ == nullptr)
    return {Code::kFailedPrecondition, "the job is over: there are no ranks to ask"};
  look(now);
  if (asking_ == what) return {};
  if (asking_)
    return {Code::kFailedPrecondition, "the ranks are asked for something else: ask once more"};
  asking_ = what;
  asked_ = clock;
  give_up_ = now + kAnswerPatience;
  received_ = 0;
  if (const Status asked = inquirer_->ask(what, steps); !asked.ok()) end("", asked.message());
  return {};
}

void Inspection::look(Time now) {
  if (!asking_) return;
  auto text = inquirer_->read();
  if (std::exchange(received_, inquirer_->received()) != received_)
    give_up_ = now + kAnswerPatience;
  if (!text.ok()) {
    end("", text.status().message());
  } else if (!text->empty()) {
    end(std::move(*text), "");
  } else if (give_up_ <= now) {
    end("", "the launcher does not answer");
  }
}

void Inspection::end(std::string text, std::string why) {
  Answer& answer = answers_[static_cast<size_t>(*std::exchange(asking_, std::nullopt))];
  answer.why = std::move(why);
  if (!answer.why.empty()) return;  // The one before is better than none.
  answer.asked = asked_;
  answer.text = std::move(text);
}

}  // namespace corro::dashboard
