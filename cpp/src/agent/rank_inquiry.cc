#include "agent/rank_inquiry.h"

#include <filesystem>

#include "wire/server_number.h"

namespace corro::agent {
namespace {

constexpr Duration kDumpPause = std::chrono::milliseconds(5);  ///< Between looks at stack dumps.

}  // namespace

void RankInquiry::hear(const Subject& about, const Start& start) {
  if (!wire::is_server(about.rank)) folder_ = std::filesystem::path(start.program).parent_path();
}

void RankInquiry::hear(const Subject& about, const Ask& /*ask*/) {
  // The rank answers into a file. Its end, or the next look at it, has the answer.
  if (const auto rank = station_.course.find(about)) station_.ranks[*rank].ask();
}

void RankInquiry::hear(const Subject& /*about*/, const Stacks& /*stacks*/) {
  const AgentCourse& course = station_.course;
  for (size_t rank = 0; rank < station_.ranks.size(); ++rank) {
    if (course.runs(rank) && !course.serves(rank))
      dumps_.ask(course.about(rank), station_.ranks[rank].python(), folder_, monotonic_now());
  }
}

void RankInquiry::hear(const Subject& /*about*/, const Trace& trace) {
  for (size_t rank = 0; rank < station_.ranks.size(); ++rank) {
    if (!station_.course.runs(rank) || station_.course.serves(rank)) continue;
    auto process = station_.ranks[rank].trace(trace.steps);
    station_.say(rank, Traced{std::move(process), monotonic_now().since_start});
  }
}

void RankInquiry::tick(Time now) {
  dumps_.poll(now, [this](const Subject& about, Stack stack) {
    station_.commander.send({about, std::move(stack)});
  });
}

Time RankInquiry::due(Time now) const { return dumps_.empty() ? Time::never() : now + kDumpPause; }

}  // namespace corro::agent
