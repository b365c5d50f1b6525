// OperatorLog: what the operator does, one line of JSON each, for whoever collects logs.
//
//   log.info("leading", {{"reason", reason}});
//   // {"time":"2026-11-25T01:02:03.000000Z","level":"info","what":"leading","reason":"..."}
#pragma once

#include <cstdio>
#include <mutex>
#include <string_view>

#include "kube/job/job_spec.h"

namespace corro::kube {

/// Thread-safe. Secrets are never handed to it.
class OperatorLog {
 public:
  /// Writes to `file`, which stays the caller's.
  explicit OperatorLog(std::FILE* file = stderr) : file_(file) {}

  /// `fields` is an object; its fields follow the time, the level and what happened.
  void info(std::string_view what, const Json& fields) { write("info", what, fields); }
  void warning(std::string_view what, const Json& fields) { write("warning", what, fields); }
  void error(std::string_view what, const Json& fields) { write("error", what, fields); }

 private:
  void write(std::string_view level, std::string_view what, const Json& fields);

  std::mutex mutex_;
  std::FILE* const file_;
};

}  // namespace corro::kube
