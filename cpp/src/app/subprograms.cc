#include "app/subprograms.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "app/program.h"

namespace corro::app {
namespace {

constexpr std::array<std::string_view, 5> kOfJobs = {"jobs", "logs", "stop", "scale", "autoscale"};
constexpr std::string_view kFolder = "/libexec/corro";
constexpr int kNotFound = 127;  // as shells say it

}  // namespace

std::string_view subprogram_of(std::string_view command) {
  if (command == "plan" || command == "probe") return "corro-plan";
  if (command == "checkpoint") return "corro-checkpoint";
  if (command == "server") return "corro-server";
  if (command == "coordinator") return kCoordinatorProgram;
  if (std::ranges::find(kOfJobs, command) != kOfJobs.end()) return kJobsProgram;
  return command == "operator" ? "corro-operator" : "";
}

std::string folder_of_corro(const std::string& folder) {
  if (!folder.ends_with(kFolder)) return folder;
  return folder.substr(0, folder.size() - kFolder.size()) + "/bin";
}

std::string path_of(const std::string& subprogram, const std::string& bin) {
  return fmt::format("{}{}/{}", bin.substr(0, bin.rfind('/')), kFolder, subprogram);
}

int become(const std::string& path, const std::string& command,
           const std::vector<std::string>& arguments) {
  std::vector<char*> words = {const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments)
    words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  execv(path.c_str(), words.data());
  complain(errno == ENOENT
               ? fmt::format("corro {}: {} is not there: this corro was installed without it; "
                             "install the whole wheel, or CMake's component development-more",
                             command, path)
               : fmt::format("corro {}: cannot start {}: {}", command, path, strerror(errno)));
  return kNotFound;
}

}  // namespace corro::app
