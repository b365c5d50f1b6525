// Status and Result<T>: how corro reports failures that happen in a healthy cluster.
//
//   Result<Fd> listener = listen_on(address);
//   if (!listener.ok()) return listener.status().with_context("bootstrap");
//
// Codes equal gRPC's canonical codes, so they cross C++, the wire and Python unchanged.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace corro {

enum class Code : uint8_t {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

/// Returns the canonical spelling, for example "DEADLINE_EXCEEDED".
[[nodiscard]] std::string_view code_name(Code code);

/// Says which rank was lost or differed, in which operation and phase. Travels with a Status.
struct FailureDetail {
  int rank = -1;           ///< World rank of the culprit, -1 if unknown.
  std::string op = {};     ///< For example "allreduce".
  std::string phase = {};  ///< For example "reduce" or "wait for rank 2".
  bool torn = false;       ///< True if the caller's output buffer may hold partial results.
};

/// A code and a one-line message; immutable value. A successful Status is a null pointer: it costs
/// nothing to make, copy or drop.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : Status(code, std::move(message), std::nullopt) {}
  Status(Code code, std::string message, FailureDetail detail)
      : Status(code, std::move(message), std::optional(std::move(detail))) {}

  [[nodiscard]] bool ok() const { return failure_ == nullptr; }
  [[nodiscard]] Code code() const { return ok() ? Code::kOk : failure_->code; }
  [[nodiscard]] const std::string& message() const;
  /// Set for failures of an operation (a lost rank, a mismatch, a deadline).
  [[nodiscard]] const std::optional<FailureDetail>& detail() const;
  /// Returns the same failure with "context: " before its message.
  [[nodiscard]] Status with_context(std::string_view context) const;
  /// Returns "CODE: message", or "OK".
  [[nodiscard]] std::string to_string() const;

 private:
  struct Failure {
    Code code;
    std::string message;
    std::optional<FailureDetail> detail;
  };
  Status(Code code, std::string message, std::optional<FailureDetail> detail);

  std::shared_ptr<const Failure> failure_;
};

/// Builds kUnavailable etc. from the current errno: "what: Connection refused".
[[nodiscard]] Status status_from_errno(std::string_view what, int error_number);

/// A value or the Status that says why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    CORRO_CHECK(!status_.ok(), "a Result without a value needs a failure");
  }

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] T& value() & {
    CORRO_CHECK(ok(), status_.message());
    return *value_;
  }
  [[nodiscard]] const T& value() const& {
    CORRO_CHECK(ok(), status_.message());
    return *value_;
  }
  [[nodiscard]] T&& value() && {
    CORRO_CHECK(ok(), status_.message());
    return std::move(*value_);
  }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

/// Returns from the enclosing function if `expression` is a failure.
#define CORRO_TRY(expression)                                                           \
  do {                                                                                  \
    if (::corro::Status try_status = (expression); !try_status.ok()) return try_status; \
  } while (false)

#define CORRO_CONCAT_INNER(a, b) a##b
#define CORRO_CONCAT(a, b) CORRO_CONCAT_INNER(a, b)
/// `CORRO_ASSIGN(auto fd, open_it());` declares fd or returns the failure.
#define CORRO_ASSIGN(declaration, expression) \
  CORRO_ASSIGN_INNER(CORRO_CONCAT(result_, __LINE__), declaration, expression)
#define CORRO_ASSIGN_INNER(result, declaration, expression) \
  auto result = (expression);                               \
  if (!result.ok()) return result.status();                 \
  declaration = std::move(result).value()

}  // namespace corro
