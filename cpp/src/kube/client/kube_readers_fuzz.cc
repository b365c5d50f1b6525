// The readers of what others write: a kubeconfig, a plug-in's output, a Lease and the answers of a
// server. The first byte says which.
#include <string_view>

#include "base/check.h"
#include "base/unix_time.h"
#include "kube/client/api_error.h"
#include "kube/client/exec_credential.h"
#include "kube/client/kubeconfig.h"
#include "kube/client/lease.h"
#include "kube/client/retry.h"

namespace {

using namespace corro;

void check_message(const Status& status) {
  CORRO_CHECK(status.message().starts_with("name:"), status.message());
  CORRO_CHECK(status.message().find('\n') == std::string::npos, status.message());
}

void fuzz_lease(std::string_view text) {
  const auto object = kube::parse_object(text, "name", size_t{1} << 20U);
  if (!object.ok()) return check_message(object.status());
  const auto lease = kube::read_lease(*object, "name");
  if (!lease.ok()) return check_message(lease.status());
  const auto again = kube::read_lease(kube::write_lease(*lease, {"d", "x"}), "name");
  CORRO_CHECK(again.ok() && *again == *lease);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0: {
      const auto access = kube::read_kubeconfig(text, "name");
      if (!access.ok()) check_message(access.status());
      if (access.ok()) CORRO_CHECK(!access->cluster.host.empty() && access->cluster.port != 0);
      break;
    }
    case 1: {
      kube::ExecPlugin plugin;
      plugin.api_version = "client.authentication.k8s.io/v1";
      const auto credential = kube::read_exec_credential(text, "name", plugin);
      if (!credential.ok()) check_message(credential.status());
      break;
    }
    case 2:
      fuzz_lease(text);
      break;
    case 3:
      check_message(kube::error_of_answer(422, text, "name"));
      break;
    default: {
      const kube::Headers headers{{"retry-after", std::string(text)}};
      const auto delay = kube::retry_after(headers, UnixTime{});
      if (delay) CORRO_CHECK(*delay >= Duration::zero());
      const auto time = parse_rfc3339(text);
      if (time) CORRO_CHECK(parse_rfc3339(rfc3339_micro(*time)).has_value());
    }
  }
  return 0;
}
