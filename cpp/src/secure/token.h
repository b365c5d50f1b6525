// A pod's token: the folder with its key, as the kubelet mounts a Secret.
#pragma once

#include <cstdint>
#include <string>

#include "secure/credentials.h"

namespace corro::secure {

/// Where the kubelet mounts it.
inline constexpr std::string_view kTokenFolder = "/corro/token";

/// Reads the member's key from `folder`/key; of the head it is that of a part: key, key-1, ... In
/// kTokenFolder the file has to belong to root, others may not write it, and the file system has to
/// be one of memory, mounted read-only. In any other folder it has to be a regular file of this
/// user that nobody else may read. PERMISSION_DENIED otherwise, NOT_FOUND if there is none; neither
/// repeats what stands there.
[[nodiscard]] Result<Key> read_token(const std::string& folder, uint32_t part = 0);

/// What is asked of a file in kTokenFolder. Pure.
struct TokenFile {
  bool is_regular = false;
  bool is_of_root = false;
  bool others_may_write = true;
  bool is_in_memory = false;
  bool is_read_only = false;
};
[[nodiscard]] Status check_token(const TokenFile& file);

}  // namespace corro::secure
