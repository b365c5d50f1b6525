// On which hosts a job runs: what -H and --hostfile say.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace corro::launch {

/// A host as the user named it.
struct HostSlots {
  std::string name;  ///< As for ssh: "node7", "user@10.0.0.7"; an IPv6 address without brackets.
  int slots = 1;
};

/// Reads "a:4,b,[fe80::1]:2"; without a number a host has one slot. INVALID_ARGUMENT names what is
/// wrong: a host twice, slots that are no number or not 1 to 1024. Pure.
[[nodiscard]] Result<std::vector<HostSlots>> parse_hosts(std::string_view text);

/// Reads a hostfile, a line for each host: "node7", "node7:4", "node7 slots=4", "node7 slots = 4",
/// with Open MPI's max_slots= and comments (#); a byte order mark is skipped. A host that is there
/// several times without slots, as schedulers write it, has so many. The failure names file and
/// line. Pure.
[[nodiscard]] Result<std::vector<HostSlots>> parse_hostfile(std::string_view text,
                                                            const std::string& path);

/// Reads a text that the user names; the failure says why it cannot be read, without its name.
using TextReader = std::function<Result<std::string>(const std::string& path)>;

/// Reads a hostfile for read_hosts(): at most 16 MiB. Blocks.
[[nodiscard]] Result<std::string> read_hostfile(const std::string& path);

/// The hosts of -H, or those of --hostfile. INVALID_ARGUMENT if both are given; the reader's
/// failure if the file cannot be read.
[[nodiscard]] Result<std::vector<HostSlots>> read_hosts(const std::string& hosts,
                                                        const std::string& hostfile,
                                                        const TextReader& read_text);

/// Gives `ranks` of them places in the order of the hosts, as many as each has slots; those without
/// a rank are left out. `ranks` 0: all slots. INVALID_ARGUMENT if there are too few; it names
/// `option`. Pure.
[[nodiscard]] Result<std::vector<HostSlots>> place_ranks(std::vector<HostSlots> hosts, int ranks,
                                                         const std::string& option = "-np");

/// Whether the name is this host's: localhost, the name that it has itself, or that without its
/// domain. Pure.
[[nodiscard]] bool is_own_host(const std::string& name, const std::string& own);

/// The same hosts, with this one once, under its first name, with all its slots. Pure.
[[nodiscard]] std::vector<HostSlots> under_one_name(std::vector<HostSlots> hosts,
                                                    const std::string& own);

}  // namespace corro::launch
