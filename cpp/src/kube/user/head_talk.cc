#include "kube/user/head_talk.h"

#include <fmt/format.h>

#include <utility>

#include "kube/client/pod_log.h"
#include "kube/user/folder_sender.h"
#include "kube/user/log_filter.h"

namespace corro::kube {
namespace {

constexpr Duration kRetryPause = std::chrono::seconds(1);

/// NOT_FOUND: its container does not run now. INTERNAL: its node does not answer.
bool may_heal(Code code) {
  return code == Code::kUnavailable || code == Code::kNotFound || code == Code::kInternal ||
         code == Code::kDeadlineExceeded || code == Code::kResourceExhausted;
}

}  // namespace

HeadTalk::HeadTalk(Client& client, const ClusterRun& run, ObjectKey head,
                   const std::optional<launch::SyncTree>& tree, bool is_first, RunView& view)
    : client_(client),
      run_(run),
      head_(std::move(head)),
      tree_(tree),
      is_first_(is_first),
      view_(view) {
  thread_ = std::thread([this] {
    const Status status = talk();
    state_.lock()->outcome = status;
  });
}

HeadTalk::~HeadTalk() {
  folder_stop_.request_stop();
  log_stop_.request_stop();
  thread_.join();
}

Status HeadTalk::talk() {
  if (tree_) {
    Status brought = bring_folder();
    if (!brought.ok() && folder_stop_.stop_requested()) return {};
    if (!brought.ok() && is_first_) return brought;
    // Ranks have run: what they have done is worth more than this head's folder.
    if (!brought.ok())
      view_.complain(fmt::format("{}; head {} waits for it, or goes on without it",
                                 brought.message(), head_.name));
  }
  return read_log();
}

Status HeadTalk::read_log() {
  LogFilter filter(view_.manner().verbose, [this](io::Output stream, std::string_view bytes) {
    view_.feed(stream, bytes);
  });
  const auto receive = [&filter](std::string_view bytes) {
    filter.feed(bytes);
    return Status();
  };
  std::string said;
  const auto on_trouble = [this, &said](const Status& trouble) {
    const bool is_cut = trouble.code() == Code::kUnavailable;
    if (is_cut) return view_.progress(trouble.message());
    if (std::exchange(said, trouble.message()) == trouble.message()) return;
    view_.complain(trouble.message() + "; the job goes on, and so do tries to read it");
  };
  const LogRequest log{.pod = head_, .container = "head", .outlasts_refusals = true};
  const Status end = follow_log(client_, log, receive, on_trouble, log_stop_.get_token());
  filter.finish();
  // The pod goes when the job is over.
  return end.code() == Code::kNotFound ? Status() : end;
}

Status HeadTalk::bring_folder() {
  const std::string root = folder_in_pods(run_.sync);
  const auto show = [this](const FolderProgress& left) {
    if (left.files == 0) return;
    view_.progress(launch::describe_lacking(run_.sync, left.files, left.bytes));
  };
  const std::stop_token stop = folder_stop_.get_token();
  std::string said;
  Status status = send_folder(client_, head_, *tree_, root, show, stop);
  while (may_heal(status.code()) && !stop.stop_requested()) {
    if (std::exchange(said, status.message()) != status.message())
      view_.say(fmt::format("--sync {}: {}; tries again", run_.sync, status.message()));
    if (client_.surroundings().wait(kRetryPause, stop)) break;
    status = send_folder(client_, head_, *tree_, root, show, stop);
  }
  if (status.ok()) state_.lock()->has_folder = true;
  return status.with_context("--sync " + run_.sync);
}

}  // namespace corro::kube
