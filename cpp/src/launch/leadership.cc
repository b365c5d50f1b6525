#include "launch/leadership.h"

#include <utility>

namespace corro::launch {

void Leadership::keep(Time now) {
  if (lead_ != nullptr && !record_.over) lead_->keep(now);
}

Time Leadership::due() const {
  return lead_ == nullptr || record_.over ? Time::never() : lead_->due();
}

void Leadership::write(JobRecord record) {
  if (lead_ == nullptr) return;
  record_ = std::move(record);
  lead_->write(record_);
}

void Leadership::end(const std::string& job_id, const std::optional<Ending>& ending) {
  if (lead_ == nullptr) return;
  JobRecord record = record_;
  record.job = job_id;
  record.over = true;
  record.ending = ending;
  lead_->write(record);
  if (lead_->lost().empty()) record_ = std::move(record);
}

}  // namespace corro::launch
