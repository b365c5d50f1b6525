#include "agent/host_facts.h"

#include <sys/statvfs.h>
#include <sys/utsname.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

namespace corro::agent {
namespace {

namespace fs = std::filesystem;

/// Names of what is in a folder and begins so; none if it cannot be read.
std::vector<std::string> names_in(const fs::path& folder, std::string_view beginning) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    if (std::string name = entry->path().filename(); name.starts_with(beginning))
      names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

/// "2.8.0" for "torch-2.8.0.dist-info".
std::string torch_in(const fs::path& packages) {
  constexpr std::string_view kBegin = "torch-";
  constexpr std::string_view kEnd = ".dist-info";
  for (const std::string& name : names_in(packages, kBegin)) {
    if (name.ends_with(kEnd))
      return name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
  }
  return "";
}

/// "3.12" for "python3.12"; "" for what is no Python with its minor version.
std::string version_in(const std::string& name) {
  constexpr std::string_view kBegin = "python";
  if (!name.starts_with("python3.")) return "";
  const std::string version = name.substr(kBegin.size());
  return version.find_first_not_of("0123456789.") == std::string::npos ? version : "";
}

}  // namespace

PythonFacts read_python_facts(const std::string& python) {
  PythonFacts facts;
  if (python.empty()) return facts;
  std::error_code failed;
  // A virtual environment's python is a link to another one's: the last name has the version, the
  // first place has the packages.
  facts.python = version_in(fs::canonical(python, failed).filename());
  const fs::path library = fs::path(python).parent_path().parent_path() / "lib";
  const std::string own = "python" + facts.python;
  for (const std::string& name : names_in(library, facts.python.empty() ? "python3." : own)) {
    if (facts.python.empty()) facts.python = version_in(name);
    for (const char* packages : {"site-packages", "dist-packages"})
      if (facts.torch.empty()) facts.torch = torch_in(library / name / packages);
  }
  return facts;
}

HostFacts read_host_facts(const std::string& python) {
  HostFacts facts;
  utsname system{};
  (void)uname(&system);
  facts.kernel = system.release;
  struct statvfs shared{};
  if (statvfs("/dev/shm", &shared) == 0) {
    facts.shared_bytes = uint64_t{shared.f_blocks} * shared.f_frsize;
    facts.shared_free = uint64_t{shared.f_bavail} * shared.f_frsize;
  }
  const PythonFacts versions = read_python_facts(python);
  facts.python = versions.python;
  facts.torch = versions.torch;
  return facts;
}

}  // namespace corro::agent
