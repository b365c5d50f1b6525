// StatusDraft: the status a job will have, begun from the one it has. What a decision must not
// forget is in it; nothing is written if nothing changes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "kube/job/job_spec.h"

namespace corro::kube {

/// What status.members keeps of a member: of which generation its pod is, and what became of it.
///   seen      the pod was there once: if it is not now, it was lost
///   done      it ended well
///   failures  replacements in a row of pods that lived only briefly
///   not_before  no pod of this generation is made earlier
struct MemberState {
  int generation = 0;
  bool seen = false;
  bool done = false;
  int failures = 0;
  std::optional<KubeTime> not_before = {};

  friend bool operator==(const MemberState&, const MemberState&) = default;
};

/// Loop-confined. Borrows the job.
class StatusDraft {
 public:
  StatusDraft(const Json& job, KubeTime now);

  /// True once the job was decided on before.
  [[nodiscard]] bool exists() const;
  /// Succeeded or Failed is true: nothing may start any more.
  [[nodiscard]] bool is_finished() const;

  [[nodiscard]] bool is_true(std::string_view condition) const;
  [[nodiscard]] std::string message_of(std::string_view condition) const;
  [[nodiscard]] std::string reason_of(std::string_view condition) const;
  [[nodiscard]] std::optional<KubeTime> transition_of(std::string_view condition) const;
  /// Returns whether status or reason change.
  bool set_condition(std::string_view type, bool status, std::string_view reason,
                     std::string_view message);

  [[nodiscard]] int64_t number(std::string_view field) const;
  [[nodiscard]] std::optional<KubeTime> time(std::string_view field) const;
  [[nodiscard]] bool flag(std::string_view field) const;
  [[nodiscard]] std::string text(std::string_view field) const;
  /// An empty one if there is none.
  [[nodiscard]] const Json& object(std::string_view field) const;
  /// One of the counts in an object of counts.
  [[nodiscard]] int64_t count(std::string_view field, std::string_view name) const;
  void set_count(std::string_view field, std::string_view name, int64_t value);
  void set(std::string_view field, Json value) { status_[std::string(field)] = std::move(value); }
  void erase(std::string_view field) { status_.erase(std::string(field)); }

  [[nodiscard]] MemberState member(const std::string& key) const;
  void set_member(const std::string& key, const MemberState& state);

  /// The merge patch to write, with the resourceVersion; null if nothing changes.
  [[nodiscard]] Json patch() const;
  /// False if only counts, messages and `seen` change: what may wait a second.
  [[nodiscard]] bool is_urgent() const;

 private:
  [[nodiscard]] const Json* condition(std::string_view type) const;

  const Json& job_;
  KubeTime now_;
  Json before_;
  Json status_;
};

/// The JSON merge patch that makes `after` of `before`, both objects.
[[nodiscard]] Json merge_patch_between(const Json& before, const Json& after);

}  // namespace corro::kube
