// The last thing a failed job shows: one block of at most 12 lines, and the same as JSON.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "diagnosis/verdict.h"

namespace corro::diagnosis {

inline constexpr size_t kMaxBlockLines = 12;

/// Everything the block says. Made by describe_failure().
struct FailureReport {
  int rank = -1;
  std::string host;
  pid_t pid = 0;
  std::optional<uint64_t> step;  ///< None: the rank had no flight recorder.
  std::string op;                ///< "allreduce", a service of a plan; "" without an operation.
  std::string phase;
  std::string cause;  ///< What happened, in one line.
  int exit = 1;
  std::string where;  ///< "train.py:12 in main: loss.backward()"; "" if unknown.
  std::string with;   ///< With whom it was communicating.
  std::string log;    ///< Its full log.
  std::string advice;
  std::string hint;  ///< What may have been meant on the command line.
  std::string job;   ///< Why an elastic job did not go on without it; "": it is not elastic.
  std::vector<int> alike;
  std::string alike_at;  ///< "rank 3 at ...": the first of them that was elsewhere than `where`.
  std::vector<int> victims;
  std::vector<int> waited;  ///< Gave up waiting for it; also victims. Empty: it failed by itself.
  std::string elsewhere;    ///< "rank 1 waited in allgather 'x'": the rank that it waited for.
  std::string waited_at;    ///< Where the first of them was, like `where`.
};

struct ReportContext {
  std::string host;
  std::string log_dir;
  Time now{};
  /// What may have been meant on the command line, by what the culprit said; may be empty.
  std::function<std::string(const Crash& crash)> hint = {};
};

/// Gathers what is known about the culprit of `verdict`. Pure.
[[nodiscard]] FailureReport describe_failure(const Verdict& verdict, std::span<const RankEnd> ends,
                                             const ReportContext& context);

/// At most kMaxBlockLines lines of at most `width` characters, each ended by a newline.
[[nodiscard]] std::string format_block(const FailureReport& report, size_t width);

/// One JSON object with rank, host, pid, step, op, phase, cause, exit and more; ends with a
/// newline.
[[nodiscard]] std::string format_json(const FailureReport& report);

/// The block of a job that ran into --timeout: which ranks were still running and what each did
/// last, ranks that did the same in one line. At most kMaxBlockLines lines.
[[nodiscard]] std::string format_timeout_block(Duration timeout, std::span<const RankEnd> ends,
                                               const ReportContext& context, size_t width);
/// The same job as JSON: the rank is the first one still running, exit 124.
[[nodiscard]] FailureReport describe_timeout(Duration timeout, std::span<const RankEnd> ends,
                                             const ReportContext& context);

/// Cuts a line to `width` characters (not bytes: UTF-8 sequences stay whole), and makes it one line
/// that changes nothing on a terminal.
[[nodiscard]] std::string fit(const std::string& line, size_t width);

/// Writes ranks as "rank 2" or "ranks 0-2,5".
[[nodiscard]] std::string format_ranks(const std::vector<int>& ranks);

}  // namespace corro::diagnosis
