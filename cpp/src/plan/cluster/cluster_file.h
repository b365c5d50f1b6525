// The cluster's file, version 1 (docs/planner.md): YAML, read with one clear error line, written so
// that reading gives the same cluster.
//
//   CORRO_ASSIGN(const Cluster cluster, read_cluster(text, "cluster.yaml", read_file));
//   CORRO_ASSIGN(const std::string text, write_cluster(cluster));
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "plan/cluster/cluster.h"

namespace corro::plan {

inline constexpr uint64_t kClusterVersion = 1;
inline constexpr size_t kMostIncludedFiles = 64;

/// Returns the text of a file that another one names. Its failure is shown to the user.
using ReadText = std::function<Result<std::string>(const std::string& path)>;

/// Reads a cluster. INVALID_ARGUMENT "name:line: place: what is wrong" for anything but a well
/// formed one, and for an included file that `read_text` fails on. Paths of included files and of
/// matrices are taken from the folder of the file that names them. The types of the result are
/// those that hosts have, in the order of their first use.
[[nodiscard]] Result<Cluster> read_cluster(std::string_view text, std::string_view name,
                                           const ReadText& read_text);

/// Writes a file that read_cluster() reads. INVALID_ARGUMENT for a cluster that it would refuse.
[[nodiscard]] Result<std::string> write_cluster(const Cluster& cluster);

}  // namespace corro::plan
