#include "coord/record_store.h"

#include <fmt/format.h>

namespace corro::coord {

Status check_size(const std::string& record, const std::string& where) {
  if (record.size() <= kMostRecordBytes) return {};
  return {Code::kResourceExhausted, fmt::format("{}: a record of {} bytes, of which {} are allowed",
                                                where, record.size(), kMostRecordBytes)};
}

Status not_leading(const std::string& leader, const std::string& where) {
  return {Code::kAborted, fmt::format("{}: {}, so this one may not change the record", where,
                                      leader.empty() ? "nobody leads" : leader + " leads")};
}

}  // namespace corro::coord
