// Expectations: what the caller did and its caches may not show yet. Data of the caller's; losing
// it costs calls and nothing else.
//
// The story of a create:
//   asked      from before the call. Uids of that name that watches tell of meanwhile are kept:
//              they may tell of the new object before the answer comes
//   created    it was answered, a 409 of an object of ours too, and its uid is known. Until a watch
//              tells of this uid the caches show nothing of that name, or an older object of it,
//              which is gone. Secrets are not watched: they stay created
//   unanswered the call failed, and may have been done. It stays asked, and the caller gets the
//              object before it decides anew: a second create could make it twice
//
// A list of a whole kind ends what was created of it: it may have come and gone unseen.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "kube/job/job_spec.h"

namespace corro::kube {

struct ObjectName {
  std::string kind;
  std::string name;

  friend auto operator<=>(const ObjectName&, const ObjectName&) = default;
};

/// Confined to whoever has the job.
class Expectations {
 public:
  struct Asked {
    std::string api_version;
    ObjectName object;
    std::set<std::string> told = {};  ///< Uids.
  };

  /// Before a create, or a get that stands for its answer. `known` is the uid that the caches have
  /// of this name, or "".
  void ask(std::string api_version, ObjectName object, std::string known);
  /// There is an object of that name, and it has this uid; "" if that cannot be known.
  void answer(const std::string& uid);
  /// It is certain that the call made nothing of ours.
  void drop_asked() { asked_.reset(); }
  [[nodiscard]] const std::optional<Asked>& asked() const { return asked_; }

  /// A watch tells of an object, or of its end.
  void tell(const ObjectName& object, const std::string& uid);
  void tell_list_of(std::string_view kind);

  [[nodiscard]] bool is_created(const ObjectName& object) const {
    return created_.contains(object);
  }

  std::set<std::string> deleted;  ///< Uids whose delete was answered, until a watch shows the end.
  std::optional<KubeTime> status_written;  ///< When this job's status was last written.

 private:
  std::optional<Asked> asked_;
  std::map<ObjectName, std::string> created_;  ///< To uid.
};

}  // namespace corro::kube
