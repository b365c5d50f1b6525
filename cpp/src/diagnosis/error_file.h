// torchrun's error files: JSON in which a program (or a launcher) says why it failed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "diagnosis/report.h"

namespace corro::diagnosis {

/// Returns the message of an error file that a worker wrote with torch's @record; nothing if it is
/// none. The text is foreign.
[[nodiscard]] std::optional<std::string> read_error_message(std::string_view text);

/// Writes a failure in the same form, for the program that started corro with
/// TORCHELASTIC_ERROR_FILE set.
[[nodiscard]] std::string format_error_file(const FailureReport& report, int64_t unix_time);

/// Gives ranks that failed without a traceback the error of their file in `directory`, if they
/// wrote one.
void read_error_files(std::vector<RankEnd>& ends, const std::string& directory);

/// Writes the file, if there is a path for it.
void write_error_file(const std::string& path, const FailureReport& report);

}  // namespace corro::diagnosis
