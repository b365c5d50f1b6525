// The readers of each kind's spec, and what they share. For read_job.cc alone.
#pragma once

#include "kube/job/read_job.h"

namespace corro::kube {

void read_corro_job(FieldReader fields, ReadJob& job);
/// Reads the version that `spec.writtenAs` names, whatever the object's apiVersion is.
void read_mpi_job(const Json& object, FieldReader fields, const ReadOptions& options, ReadJob& job);

/// Reads `template` of a role: at least one container, and of container 0 lists where lists belong.
[[nodiscard]] Role read_role(FieldReader& fields, Problems& problems);

/// Reads a number of seconds.
[[nodiscard]] std::optional<std::chrono::seconds> read_seconds(FieldReader& fields,
                                                               std::string_view field,
                                                               int64_t least);

}  // namespace corro::kube
