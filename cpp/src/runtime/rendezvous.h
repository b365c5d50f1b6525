// Rendezvous: how this rank finds the others, by what the environment says: through the agent of
// its host, a store of the caller's, a directory, or a rank that takes the agent's place.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/env.h"
#include "obs/flight_recorder.h"
#include "runtime/join.h"
#include "transport/mesh.h"

namespace corro::runtime {

struct Rendezvous {
  std::unique_ptr<wire::Bootstrap> bootstrap;
  transport::MeshResult mesh;
};

/// Finds the peers; for a world of one there is nobody to find, but an agent may want to know this
/// process. `shared` are descriptors for ranks of this host.
[[nodiscard]] Result<Rendezvous> meet(const Environment& environment, const JoinOptions& options,
                                      int32_t rank, int32_t size,
                                      const obs::FlightRecorder& recorder, std::vector<int> shared,
                                      Time deadline);

/// Whether this rank, of those that others have started, takes the agent's place. `own` are the
/// names and addresses of this host. Pure.
[[nodiscard]] bool takes_agents_place(const Environment& environment, int32_t rank,
                                      const std::vector<std::string>& own);

}  // namespace corro::runtime
