// A file that --sync brings to other hosts, by what it holds.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "wire/digest.h"

namespace corro::agent {

struct SyncedFile {
  std::string path;         ///< Below the folder that is brought.
  std::string link = {};    ///< Where a symbolic link leads; "" for a file.
  bool executable = false;  ///< By its owner.
  uint64_t size = 0;        ///< Bytes; 0 for a link.
  wire::Digest content{};   ///< Of what it holds; zero for a link.
  bool operator==(const SyncedFile&) const = default;
};

/// Describes what is at `path` below `root`; reads the file. NOT_FOUND if there is nothing,
/// FAILED_PRECONDITION if it is neither a file nor a link. Blocks.
[[nodiscard]] Result<SyncedFile> describe_file(const std::string& root, const std::string& path);

}  // namespace corro::agent
