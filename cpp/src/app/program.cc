#include "app/program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <exception>

#include "app/subprograms.h"

namespace corro::app {
namespace {

constexpr int kDefect = 70;  // EX_SOFTWARE of <sysexits.h>

}  // namespace

std::string own_path() {
  std::array<char, PATH_MAX> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  return {path.data(), length > 0 ? static_cast<size_t>(length) : 0};
}

std::string own_directory() {
  const std::string program = own_path();
  return folder_of_corro(program.substr(0, std::min(program.rfind('/'), program.size())));
}

void complain(const std::string& line) { fmt::print(stderr, "{}\n", line); }

int run_guarded(int argc, char** argv, const Program& program) {
  try {
    return program({argv + std::min(argc, 1), argv + argc});
  } catch (const std::exception& error) {
    complain(std::string("corro: a defect of corro itself: ") + error.what());
    return kDefect;
  }
}

}  // namespace corro::app
