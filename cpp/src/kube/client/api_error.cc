#include "kube/client/api_error.h"

#include <fmt/format.h>

#include <algorithm>

#include "kube/client/retry.h"

namespace corro::kube {
namespace {

Status failure(int http_status, const std::string& reason, const std::string& message,
               std::string_view name) {
  const Code code = code_of(http_status, reason);
  return {code == Code::kOk ? Code::kUnknown : code,
          on_one_line(fmt::format("{}: {}{}{}{}{}", name, http_status, reason.empty() ? "" : " ",
                                  reason, message.empty() ? "" : ": ", message))};
}

}  // namespace

std::string on_one_line(std::string text) {
  constexpr size_t kMost = 2048;
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7F; }, ' ');
  return text;
}

Status error_of(const Json& status, std::string_view name) {
  const Json* code = value_at(status, {"code"});
  const bool is_number = code != nullptr && code->is_number_integer();
  const int64_t number = is_number ? code->get<int64_t>() : 0;
  const bool is_http = number >= 100 && number <= 599;
  return failure(is_http ? static_cast<int>(number) : 500, text_at(status, {"reason"}),
                 text_at(status, {"message"}), name);
}

Status error_of_answer(int http_status, std::string_view body, std::string_view name) {
  const Result<Json> said = parse_object(body, name, body.size());
  if (!said.ok()) return failure(http_status, "", std::string(body.substr(0, 200)), name);
  return failure(http_status, text_at(*said, {"reason"}), text_at(*said, {"message"}), name);
}

}  // namespace corro::kube
