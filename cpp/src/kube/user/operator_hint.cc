#include "kube/user/operator_hint.h"

namespace corro::kube {

std::string_view OperatorHint::look(const Json& job, Time now) {
  constexpr Duration kPatience = std::chrono::seconds(5);
  const Json* conditions = value_at(job, {"status", "conditions"});
  is_settled_ = is_settled_ || (conditions != nullptr && !conditions->empty());
  if (is_settled_ || now < created_ + kPatience) return "";
  is_settled_ = true;
  return "no operator has seen the job yet: is corro's operator running? "
         "kubectl get deployment -A | grep corro-operator";
}

}  // namespace corro::kube
