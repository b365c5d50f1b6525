#include "launch/lead.h"

#include <fmt/format.h>

#include <algorithm>

namespace corro::launch {
namespace {

constexpr Duration kPause = std::chrono::seconds(1);
constexpr Duration kMostPause = std::chrono::seconds(8);  ///< Less than agents take for a silence.

}  // namespace

Lead::Lead(coord::RecordStore& store, uint64_t term, Time now)
    : store_(store), term_(term), kept_(now) {}

Time Lead::due() const {
  return lost_.empty() ? std::min(kept_ + kPause, store_.leads_until()) : Time::never();
}

bool Lead::holds(Time now) const {
  return lost_.empty() && now < kept_ + kMostPause && now < store_.leads_until();
}

void Lead::keep(Time now) {
  if (!lost_.empty() || (now < kept_ + kPause && holds(now))) return;
  if (now >= kept_ + kMostPause) return lose("this process did not run for a while");
  kept_ = now;
  // A store that cannot be reached may come back before the lease is over.
  const Status status = store_.renew();
  if (status.code() == Code::kAborted || now >= store_.leads_until()) lose(status.message());
}

void Lead::write(const JobRecord& record) {
  if (!lost_.empty()) return;
  const Status status = store_.write(format_record(record));
  if (!status.ok()) lose(status.message());
}

void Lead::lose(const std::string& why) {
  lost_ = fmt::format("the lead of term {} is lost: {}", term_, why);
}

}  // namespace corro::launch
