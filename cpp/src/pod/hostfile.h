// HostfileWatch: the hosts that a launcher's hostfile has ceased to name.
//
// The operator writes the hostfile of an MPIJob as the job is wanted. The kubelet brings it into
// the launcher up to a minute or so later: until then mpirun reads of hosts that will never come
// back.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace corro::pod {

/// "a.b slots=2" and "a.b:2", one in a line, name a.b. Pure.
[[nodiscard]] std::set<std::string> hosts_in(std::string_view hostfile);

/// Loop-confined.
class HostfileWatch {
 public:
  /// "": there is none.
  explicit HostfileWatch(std::string path) : path_(std::move(path)) {}

  /// Reads it anew. Whether it has ceased to name a host since the last look. One that cannot be
  /// read changes nothing. Blocks on the file.
  bool look();
  /// Named once, and not now.
  [[nodiscard]] const std::set<std::string>& gone() const { return gone_; }

 private:
  std::string path_;
  std::set<std::string> named_;
  std::set<std::string> gone_;
};

}  // namespace corro::pod
