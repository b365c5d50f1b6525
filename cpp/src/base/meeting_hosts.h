// Where ranks that others have started may meet, as far as their launcher's variables say it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace corro {

/// Returns the numeric addresses of the host on which mpirun runs, as Open MPI 4 tells its ranks
/// (OMPI_MCA_orte_hnp_uri): "1.0;tcp://10.0.0.1,10.1.0.1:4711;tcp6://[fd00::1]:4712". Pure.
[[nodiscard]] std::vector<std::string> addresses_of_uri(std::string_view uri);

/// Returns the name of the host on which mpirun runs, as Open MPI 5 tells its ranks
/// (PMIX_NAMESPACE): "prterun-node7-4711@1"; "" in any other text. Pure.
[[nodiscard]] std::string host_of_namespace(std::string_view text);

}  // namespace corro
