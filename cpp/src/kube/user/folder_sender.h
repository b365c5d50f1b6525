// Brings a folder into the head of a job: to `corro receive`, which the API server starts in the
// head's container and connects with this process. What is there already is not sent again. No port
// is open for it; the user needs the right to create pods/exec.
#pragma once

#include <functional>
#include <stop_token>
#include <string>

#include "kube/client/client.h"
#include "launch/sync_tree.h"

namespace corro::kube {

struct FolderProgress {
  uint32_t files = 0;  ///< Still to be sent.
  uint64_t bytes = 0;
};

/// Blocks until the head has the whole folder as `root`. `show` is called now and then on this
/// thread. CANCELLED after a stop; failures of ExecStream; UNAVAILABLE if a signal has ended `corro
/// receive`; FAILED_PRECONDITION for what it says itself, and for a file here that cannot be read.
[[nodiscard]] Status send_folder(Client& client, const ObjectKey& head,
                                 const launch::SyncTree& tree, const std::string& root,
                                 const std::function<void(const FolderProgress&)>& show,
                                 const std::stop_token& stop);

/// Reads a folder as --sync does; blocks. CANCELLED after a stop.
[[nodiscard]] Result<launch::SyncTree> read_folder(const std::string& folder,
                                                   const std::stop_token& stop);

}  // namespace corro::kube
