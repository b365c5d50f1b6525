// Reads what a dying process has written to stderr: which exception, and where in the user's code.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace corro::diagnosis {

/// What Python writes in front of one.
inline constexpr std::string_view kTraceback = "Traceback (most recent call last):";
/// Behind an exception, more lines that are not indented are no message but other output.
inline constexpr size_t kMaxMessageLines = 16;
/// Of Crash::details, before the dots of one that is cut.
inline constexpr size_t kMaxDetailsBytes = 400;

struct Frame {
  std::string file;
  int line = 0;
  std::string function;  ///< "" for a syntax error.
  std::string code;      ///< The source line, if it was printed.
};

struct Crash {
  std::string error;  ///< "ValueError: no such column"; "" if nothing was recognised.
  /// The other lines of its message and its notes, joined in one; what is too much is cut: "...".
  std::string details;
  Frame where;  ///< Last frame of the user's code; file "" if none.
  /// The last line that says anything: for programs that do not print a traceback.
  std::string last_line;
};

/// Finds the last Python traceback (chained and grouped ones too), a Python "Fatal Python error",
/// or a C++ "terminate called" in the end of a stderr stream. The text is foreign: any bytes. Pure.
[[nodiscard]] Crash parse_crash(std::string_view stderr_tail);

/// Reads `  File "train.py", line 12, in main` and, as faulthandler prints it, `line 12 in main`.
[[nodiscard]] std::optional<Frame> parse_frame(std::string_view line);

/// Finds the innermost frame of the user's code (else the innermost one) in the last dump of one
/// thread that Python's faulthandler wrote. The text is foreign. Pure.
[[nodiscard]] Frame parse_stack(std::string_view dumps);

/// True if the line begins what Python or C++ says of another error than a traceback's: it belongs
/// to no message before it.
[[nodiscard]] bool begins_other_error(std::string_view line);

/// Takes away what torch.distributed writes in front of every line of a traceback: "[rank1]: ", once
/// for each time that the default process group was made.
[[nodiscard]] std::string_view without_rank(std::string_view line);

/// True if a frame's file belongs to the user and not to Python, an installed package or the
/// import machinery.
[[nodiscard]] bool is_user_code(std::string_view file);

}  // namespace corro::diagnosis
