// A key pair for ssh between the pods of a job whose user has asked for real ssh.
#pragma once

#include <map>
#include <string>

#include "base/status.h"

namespace corro::secure {

/// The texts of Secret `<job>-ssh`, by key, fresh and random: "ssh-privatekey", an ECDSA key on
/// P-521 in PEM (RFC 5915), and "ssh-publickey", a line of OpenSSH's (RFC 5656). INTERNAL if
/// OpenSSL cannot make it.
[[nodiscard]] Result<std::map<std::string, std::string>> make_ssh_keys();

}  // namespace corro::secure
