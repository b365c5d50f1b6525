// Action: one call of the API that a decision asks for. The caller performs a decision's actions in
// their order and stops at the first that fails; then it looks again.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kube/reconcile/observed.h"

namespace corro::kube {

enum class ActionKind : uint8_t { kStatus, kCreate, kPatch, kDelete, kEvent };

/// What of a created Secret only the caller can make, since it is random.
enum class Fill : uint8_t { kNothing, kCredentials, kSshKeys };

struct Action {
  ActionKind kind = ActionKind::kCreate;
  std::string api_version = {};
  ObjectName object = {};
  /// create: the object. patch, status: a JSON merge patch; that of the status has the
  /// resourceVersion it was decided on. delete: DeleteOptions. event: {"type", "reason",
  /// "message"}.
  Json body = {};
  Fill fill = Fill::kNothing;
  std::vector<std::string> members = {};  ///< Of kCredentials: whose keys the Secret has.
};

/// What is to be done now, why, and when to look again if nothing happens before.
struct Decision {
  std::vector<Action> actions;
  std::string reason;
  std::optional<KubeTime> look_again;
};

}  // namespace corro::kube
