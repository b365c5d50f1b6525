// HeadTalk: what `corro run --on kubernetes` says to one head, and what that says.
//
//   bringing   the folder, if there is one: again and again while failures may heal, until it is
//              there, the head is gone (end_folder()), or a failure is final
//   reading    the log, to its end. Failures are said, and it is tried again
//   over       outcome(): a failure only if no folder came and none had come to an earlier head
#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "base/guarded.h"
#include "kube/client/client.h"
#include "kube/user/manifest.h"
#include "kube/user/run_view.h"
#include "launch/sync_tree.h"

namespace corro::kube {

/// Goes on on a thread of its own. What it is given outlives it. Thread-safe.
class HeadTalk {
 public:
  /// `is_first`: no head has got the folder yet, so no rank has run.
  HeadTalk(Client& client, const ClusterRun& run, ObjectKey head,
           const std::optional<launch::SyncTree>& tree, bool is_first, RunView& view);
  ~HeadTalk();
  HeadTalk(const HeadTalk&) = delete;
  HeadTalk& operator=(const HeadTalk&) = delete;

  [[nodiscard]] const std::string& head() const { return head_.name; }
  /// None while it goes on.
  [[nodiscard]] std::optional<Status> outcome() { return state_.lock()->outcome; }
  /// The head has all of it, so ranks may run.
  [[nodiscard]] bool has_folder() { return state_.lock()->has_folder; }
  /// Nobody is there any more to whom it could be brought.
  void end_folder() { folder_stop_.request_stop(); }

 private:
  Status talk();
  Status read_log();
  Status bring_folder();

  struct State {
    bool has_folder = false;
    std::optional<Status> outcome = {};
  };

  Client& client_;
  const ClusterRun& run_;
  const ObjectKey head_;
  const std::optional<launch::SyncTree>& tree_;
  const bool is_first_;
  RunView& view_;
  std::stop_source folder_stop_, log_stop_;
  Guarded<State> state_;
  std::thread thread_;
};

}  // namespace corro::kube
