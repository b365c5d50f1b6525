// Exit statuses of the program that are not a rank's own.
#pragma once

namespace corro::diagnosis {

inline constexpr int kNoWayOnExit = 1;    ///< An elastic job was stopped, and no rank has failed.
inline constexpr int kUsageExit = 2;      ///< Wrong command line, or nothing could be started.
inline constexpr int kLeftExit = 75;      ///< Of a rank and its job, which save and end when asked.
inline constexpr int kTimeoutExit = 124;  ///< --timeout, as timeout(1).
inline constexpr int kSignalExit = 128;   ///< Plus the signal, as shells do.

}  // namespace corro::diagnosis
