#include "base/status.h"

#include <array>
#include <cstring>

namespace corro {

std::string_view code_name(Code code) {
  static constexpr std::array<std::string_view, 17> kNames = {"OK",
                                                              "CANCELLED",
                                                              "UNKNOWN",
                                                              "INVALID_ARGUMENT",
                                                              "DEADLINE_EXCEEDED",
                                                              "NOT_FOUND",
                                                              "ALREADY_EXISTS",
                                                              "PERMISSION_DENIED",
                                                              "RESOURCE_EXHAUSTED",
                                                              "FAILED_PRECONDITION",
                                                              "ABORTED",
                                                              "OUT_OF_RANGE",
                                                              "UNIMPLEMENTED",
                                                              "INTERNAL",
                                                              "UNAVAILABLE",
                                                              "DATA_LOSS",
                                                              "UNAUTHENTICATED"};
  const auto index = static_cast<size_t>(code);
  return index < kNames.size() ? kNames[index] : "UNKNOWN";
}

Status::Status(Code code, std::string message, std::optional<FailureDetail> detail) {
  if (code == Code::kOk) return;
  failure_ = std::make_shared<const Failure>(Failure{code, std::move(message), std::move(detail)});
}

const std::string& Status::message() const {
  static const std::string kNone;
  return ok() ? kNone : failure_->message;
}

const std::optional<FailureDetail>& Status::detail() const {
  static const std::optional<FailureDetail> kNone;
  return ok() ? kNone : failure_->detail;
}

Status Status::with_context(std::string_view context) const {
  if (ok()) return {};
  return {failure_->code, std::string(context) + ": " + failure_->message, failure_->detail};
}

std::string Status::to_string() const {
  if (ok()) return "OK";
  return std::string(code_name(code())) + ": " + message();
}

Status status_from_errno(std::string_view what, int error_number) {
  Code code = Code::kUnavailable;
  switch (error_number) {
    case EACCES:
    case EPERM:
      code = Code::kPermissionDenied;
      break;
    case ENOENT:
      code = Code::kNotFound;
      break;
    case EEXIST:
    case EADDRINUSE:
      code = Code::kAlreadyExists;
      break;
    case ENOMEM:
    case ENOSPC:
    case EMFILE:
    case ENFILE:
      code = Code::kResourceExhausted;
      break;
    case EINVAL:
      code = Code::kInvalidArgument;
      break;
    case ETIMEDOUT:
      code = Code::kDeadlineExceeded;
      break;
    default:
      break;
  }
  std::array<char, 128> buffer{};
  const char* text = strerror_r(error_number, buffer.data(), buffer.size());
  return {code, std::string(what) + ": " + text};
}

}  // namespace corro
