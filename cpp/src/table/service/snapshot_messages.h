// What rank 0 and servers say to each other about snapshots, and about servers that leave. Bytes: docs/wire.md.
//
//   rank 0                              server
//   SAVE ->                             some shards, as they are now, into a folder
//      <- SAVING                        their rows may change from now on
//      <- SAVED                         unasked, and on each new connection: they are on the disk, or
//                                       why they are not
//   LOAD ->                             the shards that the server holds, out of a snapshot
//      <- LOADED                        they are there, beside those that it has, and after how many
//                                       steps of the table
//   ADOPT ->                            the loaded rows are the table's from now on
//      <- ADOPTED
//      <- LEAVING                       unasked, and on each new connection: the server is asked to
//                                       end, and does so once its rows are elsewhere
//   RELEASE ->                          nobody needs the server any more
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/status.h"
#include "checkpoint/manifest.h"
#include "table/service/holders.h"

namespace corro::table {

inline constexpr size_t kMaxFolderBytes = 4096;

struct Save {
  uint64_t attempt = 0;  ///< Tells it from others of the same checkpoint.
  uint64_t step = 0;     ///< Of the checkpoint.
  uint64_t steps = 0;    ///< That the table has taken.
  uint32_t table = 0;    ///< Its place among the tables of the checkpoint.
  uint32_t part = 0;     ///< Which one of all parts this server writes.
  uint32_t parts = 1;
  bool counts = false;  ///< What changes from now on is counted: a delta may build on this one.
  std::optional<checkpoint::Base> base = {};  ///< It is a delta on that one.
  ShardSet shards = {};                       ///< Of the part.
  std::string folder = {};                    ///< That of all checkpoints, as an absolute path.
  bool operator==(const Save&) const = default;
};
struct Saved {
  uint64_t attempt = 0;
  Status status;
};
struct Load {
  uint64_t step = 0;  ///< Of the checkpoint.
  bool weights_only = false;
  ShardSet shards = {};
  std::string folder = {};
  bool operator==(const Load&) const = default;
};

[[nodiscard]] Bytes encode_save(const Save& save);
/// INVALID_ARGUMENT unless encode_save() has written it; so do the others.
[[nodiscard]] Result<Save> decode_save(BytesView body);
[[nodiscard]] Bytes encode_saved(const Saved& saved);
[[nodiscard]] Result<Saved> decode_saved(BytesView body);
[[nodiscard]] Bytes encode_load(const Load& load);
[[nodiscard]] Result<Load> decode_load(BytesView body);
/// `steps`: that the table had taken.
[[nodiscard]] Bytes encode_loaded(uint64_t steps);
[[nodiscard]] Result<uint64_t> decode_loaded(BytesView body);

}  // namespace corro::table
