// Writing a checkpoint, in a folder of checkpoints:
//
//   FOLDER/step-100/manifest.json             a checkpoint
//   FOLDER/step-100/rank-0.safetensors
//   FOLDER/step-100/rank-1.safetensors
//   FOLDER/step-100/table-0.part-0.rows       of its first table, the first part (design 0048)
//   FOLDER/step-200.partial-5f3a/...          one that is being written, or was when a rank was lost
//   FOLDER/.lock                              held by rank 0 of the job that writes here
//
//   1. every rank    write_part(): its file, then what it is, rank-N.json. Servers of tables write
//                    theirs, table-T.part-N.json
//   2. all ranks     say that step 1 went well; that is the callers' business
//   3. rank 0        commit(): merges what the ranks have said, writes the manifest, and gives the
//                    folder its name. That one rename is the moment at which the checkpoint exists
//   4. rank 0        remove_old()
//
// A process that is killed anywhere leaves a partial folder, which nobody reads and the next job
// removes. The number behind ".partial-" is of one attempt, so what two attempts at the same step
// have written cannot mix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/disk.h"
#include "checkpoint/manifest.h"
#include "io/fd.h"

namespace corro::checkpoint {

inline constexpr const char* kManifestName = "manifest.json";

/// The name of a checkpoint's folder: "step-100".
[[nodiscard]] std::string folder_name(uint64_t step);

/// The name of the folder while it is written: "step-100.partial-5f3a".
[[nodiscard]] std::string partial_name(uint64_t step, uint64_t attempt);

/// The name of what a rank says of its file, until commit(): "rank-0.json".
[[nodiscard]] std::string part_name(uint32_t rank);

/// The same of a table's part, by the place of the table among those of the checkpoint:
/// "table-0.part-0.json".
[[nodiscard]] std::string table_part_name(uint32_t table, uint32_t part);

/// Step 1: writes a rank's file out of its image, computes the checksums meanwhile, and writes the
/// part beside it. `folder` is the full path of the partial folder; it is made if need be. Blocks
/// until all is on the disk.
[[nodiscard]] Status write_part(Disk& disk, const std::string& folder, uint32_t rank, Manifest part,
                                std::span<const std::byte> image);

/// What a checkpoint consists of: so many parts of ranks, and of each table.
struct Parts {
  uint32_t ranks = 0;
  std::vector<uint32_t> tables = {};
};

/// Step 3. FAILED_PRECONDITION if ranks have written different things, NOT_FOUND if a part is not
/// there: who wrote it does not share the folder. Takes the place of a checkpoint of that step.
[[nodiscard]] Status commit(Disk& disk, const std::string& root, uint64_t step, uint64_t attempt,
                            const Parts& parts);

/// Step 4: removes checkpoints before `step`, but for the newest so that `keep` are left. Later ones
/// stay: they are of another run, and not ours to remove. So do `needed` ones.
[[nodiscard]] Status remove_old(Disk& disk, const std::string& root, uint64_t step, size_t keep,
                                const std::set<uint64_t>& needed = {});

/// Removes what unfinished attempts have left. The caller holds the lock.
[[nodiscard]] Status remove_partial(Disk& disk, const std::string& root);

/// The right to write into a folder of checkpoints, until it goes away or the process ends.
/// Move-only; externally synchronized.
class FolderLock {
 public:
  /// FAILED_PRECONDITION if another process holds it. Does not wait.
  [[nodiscard]] static Result<FolderLock> take(const std::string& root);

 private:
  explicit FolderLock(io::Fd file) : file_(std::move(file)) {}

  io::Fd file_;
};

}  // namespace corro::checkpoint
