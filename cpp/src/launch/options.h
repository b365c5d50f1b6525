// What the user asked for on the command line of `corro run`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/show.h"

namespace corro::launch {

/// Variables by name; read once from the process and passed on as a value.
using Variables = std::map<std::string, std::string>;

/// Returns the variable's value, or `otherwise` if it is not set.
[[nodiscard]] inline std::string value_of(const Variables& environment, const std::string& name,
                                          const std::string& otherwise = "") {
  const auto found = environment.find(name);
  return found == environment.end() ? otherwise : found->second;
}

enum class Bind : uint8_t { kAuto, kNone, kCore };

/// An argument of the program that is spelt like an option of `corro run`.
struct MisplacedOption {
  std::string name;       ///< As it was written: "-np".
  std::string words;      ///< With its value: "-np 2".
  bool is_ranks = false;  ///< It gives the number of ranks.
};

struct RunOptions {
  std::optional<int> ranks;          ///< -n, -np, --nproc-per-node; none: choose_ranks().
  bool module = false;               ///< -m: the program is a Python module.
  std::vector<std::string> command;  ///< The program and its arguments.
  std::vector<MisplacedOption> misplaced;
  std::vector<std::string> env;  ///< "K=V" or "K" each.
  std::string log_dir;           ///< "": corro-runs/<time>-<name>.
  Show show;
  Bind bind = Bind::kAuto;
  std::optional<Duration> timeout;
  bool allow_single_node = false;
  bool dry_run = false;
  bool verbose = false;
  bool quiet = false;
};

}  // namespace corro::launch
