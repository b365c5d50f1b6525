#include "dashboard/json_page.h"

#include <nlohmann/json.hpp>

#include "dashboard/board_json.h"

namespace corro::dashboard {
namespace {

constexpr int kBadRequest = 400;
constexpr int kNotFound = 404;
constexpr int kConflict = 409;

int http_status_of(Code code) {
  if (code == Code::kNotFound) return kNotFound;
  return code == Code::kFailedPrecondition ? kConflict : kBadRequest;
}

}  // namespace

http::Page page_of(const nlohmann::ordered_json& json, int status) {
  return {.status = status, .text = text_of(json) + "\n", .type = http::kJson};
}

http::Page page_of(const Status& failure) {
  return page_of({{"error", failure.message()}}, http_status_of(failure.code()));
}

}  // namespace corro::dashboard
