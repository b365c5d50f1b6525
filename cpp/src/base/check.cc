#include "base/check.h"

namespace corro {

void throw_contract_error(std::string_view condition, const std::string& values,
                          std::source_location where) {
  throw ContractError(fmt::format("{}:{}: {}{}", where.file_name(), where.line(), condition,
                                  values.empty() ? "" : " (" + values + ")"));
}

}  // namespace corro
