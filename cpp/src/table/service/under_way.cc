#include "table/service/under_way.h"

#include <algorithm>

namespace corro::table {

Fetch::Fetch(std::span<const uint64_t> ids, uint32_t dim)
    : ids_(ids.begin(), ids.end()),
      dim_(dim),
      keys_(distinct(ids)),
      rows_(keys_.keys.size() * dim) {}

bool Fetch::is_of(std::span<const uint64_t> ids) const { return std::ranges::equal(ids_, ids); }

void Fetch::ask(uint64_t at_least) {
  at_least_ = at_least;
  arrived_step_ = UINT64_MAX;
  unanswered_ = 0;
  failure_ = {};
}

void Fetch::fail(const Status& why) {
  unanswered_ = 0;
  failure_ = why;
}

void Fetch::take(const Status& status, MessageKind kind, BytesView body,
                 std::span<const uint32_t> rows) {
  --unanswered_;
  const Status taken = status.ok() ? take_rows(kind, body, rows) : status;
  if (failure_.ok()) failure_ = taken;
  end_if_answered();
}

Status Fetch::take_rows(MessageKind kind, BytesView body, std::span<const uint32_t> rows) {
  const auto answer = decode_rows(body, rows.size(), dim_);
  if (kind != MessageKind::kRows || !answer.ok())
    return {Code::kInternal, "table: an answer that is none"};
  const size_t count = answer->values.size() / dim_;
  const bool all = count == rows.size();
  if (!all && !step_) return {Code::kInternal, "table: rows are missing in an answer"};
  for (size_t i = 0; i < count; ++i)
    std::copy_n(answer->values.data() + i * dim_, dim_,
                rows_.data() + rows[all ? i : answer->changed[i]] * size_t{dim_});
  arrived_step_ = std::min(arrived_step_, answer->steps);
  return {};
}

void Fetch::end_if_answered() {
  if (unanswered_ == 0 && failure_.ok()) step_ = arrived_step_;
}

void Fetch::copy_rows(std::span<float> values) const {
  for (size_t i = 0; i < keys_.row_of.size(); ++i)
    std::copy_n(rows_.data() + keys_.row_of[i] * size_t{dim_}, dim_, values.data() + i * dim_);
}

}  // namespace corro::table
