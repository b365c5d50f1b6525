// The commands that programs of their own carry out, as git does it: `corro plan` becomes
// libexec/corro/corro-plan beside the folder of `corro`. The arguments go on as they are, and the
// other program says what is wrong with them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace corro::app {

/// Of `corro coordinator`, and of `corro agent` with options.
inline constexpr std::string_view kCoordinatorProgram = "corro-coordinator";

/// Of `corro run --on`, and of `corro jobs`, `logs`, `stop`, `scale` and `autoscale`.
inline constexpr std::string_view kJobsProgram = "corro-jobs";

/// The program of a command, such as "corro-plan" of "plan" and of "probe"; "" if the command is
/// carried out by `corro` itself, or is none.
[[nodiscard]] std::string_view subprogram_of(std::string_view command);

/// Where `corro` lies, from the folder of one of its programs: PREFIX/bin for
/// PREFIX/libexec/corro, else the folder itself.
[[nodiscard]] std::string folder_of_corro(const std::string& folder);

/// The full path of a subprogram, from the folder of `corro`: PREFIX/libexec/corro/NAME.
[[nodiscard]] std::string path_of(const std::string& subprogram, const std::string& bin);

/// Becomes the program at `path`. Comes back only if that failed: 127, after one line for
/// `command` that says what is missing.
[[nodiscard]] int become(const std::string& path, const std::string& command,
                         const std::vector<std::string>& arguments);

}  // namespace corro::app
