#include "launch/command.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/quoted.h"
#include "launch/python_line.h"

namespace corro::launch {
namespace {

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string directory_of(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

/// The name without its ending, and with nothing that a directory's name should not have.
std::string short_name(const std::string& path) {
  std::string name = base_name(path);
  if (name.ends_with(".py")) name.resize(name.size() - 3);
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_' && c != '.')
      c = '_';
  }
  constexpr size_t kMaxName = 40;
  return name.substr(0, kMaxName);
}

std::optional<std::string> find_on_path(const std::string& name, const Variables& environment,
                                        const FileFacts& files) {
  std::string_view rest = environment.contains("PATH") ? std::string_view(environment.at("PATH"))
                                                       : "/usr/local/bin:/usr/bin:/bin";
  while (true) {
    const size_t colon = rest.find(':');
    const std::string directory(rest.substr(0, colon));
    std::string candidate = (directory.empty() ? "." : directory) + "/" + name;
    if (files.executable(candidate)) return candidate;
    if (colon == std::string_view::npos) return std::nullopt;
    rest.remove_prefix(colon + 1);
  }
}

Status no_such_file(const std::string& path, const FileFacts& files) {
  const bool absolute = path.starts_with('/');
  return {Code::kNotFound, path + ": no such file" + (absolute ? "" : " in " + files.directory)};
}

/// What may have been meant by a name that is not on PATH; "" if nothing comes to mind.
std::string guess_meaning(const std::string& name, const std::string& python,
                          const FileFacts& files) {
  if (files.exists(name)) return " (there is one here: write ./ in front)";
  if (name.find_first_not_of("0123456789") == std::string::npos) {
    return fmt::format(" (for {} ranks: corro run -np {} ...)", name, name);
  }
  if (python.empty()) return "";
  return fmt::format(" (leave it out: `corro run` then takes {})", python);
}

/// `python`: the interpreter that the script would get without `name`; "" if there is none.
Result<std::string> find_program(const std::string& name, const std::string& python,
                                 const Variables& environment, const FileFacts& files) {
  if (name.find('/') == std::string::npos) {
    if (auto found = find_on_path(name, environment, files)) return *found;
    return Status(Code::kNotFound, fmt::format("no program '{}' on PATH{}", name,
                                               guess_meaning(name, python, files)));
  }
  if (!files.exists(name)) return no_such_file(name, files);
  if (!files.executable(name)) {
    return Status(Code::kPermissionDenied,
                  name + ": not an executable file (chmod +x, or give its interpreter first)");
  }
  return name;
}

std::string working_directory() {
  std::array<char, PATH_MAX> path{};
  return getcwd(path.data(), path.size()) == nullptr ? "." : path.data();
}

/// A module that is written like a file is a mistake: Python would say that it is not installed.
Status check_module(const std::string& name, const FileFacts& files) {
  if (name.find('/') == std::string::npos && !(name.ends_with(".py") && files.exists(name))) {
    return {};
  }
  return {Code::kInvalidArgument,
          fmt::format("-m {}: that is a file, not a module; leave -m out", name)};
}

Result<Command> python_command(const RunOptions& options, const Variables& environment,
                               const std::string& own_directory, const FileFacts& files) {
  const std::string& script = options.command[0];
  if (options.module) CORRO_TRY(check_module(script, files));
  if (!options.module && !files.exists(script)) return no_such_file(script, files);
  CORRO_ASSIGN(std::string python, find_python(environment, own_directory, files));
  // Python finds its own prefix by argv[0]: it has to be the whole path.
  Command command{.program = python,
                  .arguments = {python, "-u"},
                  .name = short_name(script),
                  .python = true,
                  .script = options.module ? "" : script,
                  .other_python = {}};
  if (options.module) command.arguments.emplace_back("-m");
  command.arguments.insert(command.arguments.end(), options.command.begin(), options.command.end());
  return command;
}

}  // namespace

Result<std::string> find_python(const Variables& environment, const std::string& own_directory,
                                const FileFacts& files) {
  const std::string venv = value_of(environment, "VIRTUAL_ENV");
  if (!venv.empty() && files.executable(venv + "/bin/python")) return venv + "/bin/python";
  for (const char* name : {"/python", "/python3"}) {
    if (files.executable(own_directory + name)) return own_directory + name;
  }
  if (auto found = find_on_path("python3", environment, files)) return *found;
  return Status(Code::kNotFound,
                "no Python found: neither in $VIRTUAL_ENV, nor beside corro, nor python3 on PATH");
}

FileFacts real_files() {
  return {
      .directory = working_directory(),
      .exists = [](const std::string& path) { return access(path.c_str(), F_OK) == 0; },
      .executable =
          [](const std::string& path) {
            struct stat info{};
            return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
                   access(path.c_str(), X_OK) == 0;
          },
      .same =
          [](const std::string& path, const std::string& other) {
            std::error_code failed;
            return std::filesystem::equivalent(path, other, failed);
          },
  };
}

Result<Command> resolve_command(const RunOptions& options, const Variables& environment,
                                const std::string& own_directory, const FileFacts& files) {
  if (options.command.empty()) {
    return Status(Code::kInvalidArgument, "no program given; for example: corro run train.py");
  }
  const std::string& name = options.command[0];
  if (name.find_first_of(" \t\n") != std::string::npos && !files.exists(name) &&
      !find_on_path(name, environment, files)) {
    return Status(Code::kNotFound,
                  fmt::format("no program {}: that is one word; leave the quotation marks out, or "
                              "give a shell's line to a shell: bash -c {}",
                              quoted(name), quoted(name)));
  }
  if (options.module || name.ends_with(".py")) {
    return python_command(options, environment, own_directory, files);
  }
  Command command{.program = name,
                  .arguments = options.command,
                  .name = short_name(name),
                  .python = false,
                  .script = {},
                  .other_python = {}};
  const auto target = is_python(name) ? python_target(options.command) : std::nullopt;
  // The script names the run, not the interpreter.
  if (target) command.name = short_name(target->name);
  const auto found = find_python(environment, own_directory, files);
  const std::string python = target && found.ok() ? *found : "";
  CORRO_ASSIGN(command.program, find_program(name, python, environment, files));
  if (!target) return command;
  const bool ours = files.same(directory_of(command.program), directory_of(python));
  command.other_python = ours ? "" : python;
  if (target->module) CORRO_TRY(check_module(target->name, files));
  if (!target->module && !files.exists(target->name)) return no_such_file(target->name, files);
  if (!target->module) command.script = target->name;
  return command;
}

}  // namespace corro::launch
