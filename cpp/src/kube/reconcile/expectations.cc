#include "kube/reconcile/expectations.h"

#include <utility>

namespace corro::kube {

void Expectations::ask(std::string api_version, ObjectName object, std::string known) {
  asked_ = Asked{std::move(api_version), std::move(object), {std::move(known)}};
}

void Expectations::answer(const std::string& uid) {
  if (!asked_) return;
  if (uid.empty() || !asked_->told.contains(uid)) created_[asked_->object] = uid;
  asked_.reset();
}

void Expectations::tell(const ObjectName& object, const std::string& uid) {
  if (asked_ && asked_->object == object) asked_->told.insert(uid);
  const auto found = created_.find(object);
  if (found != created_.end() && found->second == uid) created_.erase(found);
}

void Expectations::tell_list_of(std::string_view kind) {
  if (asked_ && asked_->object.kind == kind) asked_.reset();
  std::erase_if(created_, [&](const auto& entry) { return entry.first.kind == kind; });
}

}  // namespace corro::kube
