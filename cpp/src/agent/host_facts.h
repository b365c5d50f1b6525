// What `corro doctor` wants to know of a host beyond what a rank needs: read from files, so that it
// costs nothing and starts no process.
#pragma once

#include <cstdint>
#include <string>

namespace corro::agent {

struct HostFacts {
  std::string kernel;         ///< As uname -r.
  uint64_t shared_bytes = 0;  ///< Size of /dev/shm; 0: there is none.
  uint64_t shared_free = 0;   ///< What of it is free.
  std::string python;         ///< Version, "3.12"; "" if it is not known.
  std::string torch;          ///< Version; "" if it is not installed there.
};

/// `python`: path of the interpreter that ranks would run; "" for none.
[[nodiscard]] HostFacts read_host_facts(const std::string& python);

/// Versions of a Python and of the torch that it would import, from the names of its folders.
struct PythonFacts {
  std::string python, torch;
};
[[nodiscard]] PythonFacts read_python_facts(const std::string& python);

}  // namespace corro::agent
