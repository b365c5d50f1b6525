#include "kube/user/cluster_run.h"

#include <fmt/format.h>

#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <thread>

#include "base/guarded.h"
#include "diagnosis/exit_status.h"
#include "io/random.h"
#include "kube/user/folder_sender.h"
#include "kube/user/head_talk.h"
#include "kube/user/job_facts.h"
#include "kube/user/job_watch.h"
#include "kube/user/operator_hint.h"

namespace corro::kube {
namespace {

constexpr timespec kLookPause{.tv_sec = 0, .tv_nsec = 50'000'000};
constexpr Duration kLogPatience = std::chrono::seconds(10);  ///< For the rest of a log.
constexpr Duration kFindPatience = std::chrono::seconds(5);  ///< For a job that may be there.
constexpr int kJobFailed = 1;
/// An annotation: by it a run knows the job that it has made.
constexpr const char* kMark = "training.corro.dev/run";

std::string chance() {
  uint64_t number = 0;
  io::fill_random(std::as_writable_bytes(std::span(&number, 1)));
  return fmt::format("{:016x}", number);
}

/// Loop-confined.
class Course {
 public:
  Course(Client& client, const ClusterRun& run, const RunManner& manner, const sigset_t& signals)
      : client_(client), run_(run), view_(manner), signals_(signals), key_{run.space, run.name} {}

  int run() {
    Status made;
    work_until_signal([this, &made] { made = create(); });
    if (signal_ != 0) take_back(made);
    if (signal_ != 0) return leave();
    if (!made.ok()) return give_up(made);
    JobWatch watch(client_, key_, uid_);
    JobWatch::Seen seen;
    std::optional<int> status;
    while (!status) {
      const int signal = sigtimedwait(&signals_, nullptr, &kLookPause);
      if (signal > 0 && signal_ != 0) return leave();
      if (signal > 0) end_job(signal);
      if (stop_.stop_requested()) return leave();
      watch.take_news(seen);
      status = look(seen);
    }
    talk_.reset();
    return *status;
  }

 private:
  /// Runs `work` on a thread of its own. A signal meanwhile is kept, and ends what asks stop_.
  void work_until_signal(const std::function<void()>& work) {
    Guarded<bool> is_done(false);
    std::thread worker([&work, &is_done] {
      work();
      *is_done.lock() = true;
    });
    while (!*is_done.lock()) {
      const int signal = sigtimedwait(&signals_, nullptr, &kLookPause);
      if (signal <= 0) continue;
      if (signal_ == 0) signal_ = signal;
      stop_.request_stop();
    }
    worker.join();
  }

  /// Reads the folder first: what cannot be sent makes no job.
  Status create() {
    if (!run_.sync.empty()) {
      CORRO_ASSIGN(tree_, read_folder(run_.sync, stop_.get_token()));
    }
    CORRO_ASSIGN(Json job, job_of(run_));
    job["metadata"]["annotations"][kMark] = mark_;
    is_asked_for_ = true;
    const auto made = client_.create(kCorroJobs, key_, job, stop_.get_token(), "Strict");
    if (made.status().code() == Code::kNotFound) {
      return {Code::kNotFound, fmt::format("{}; does this cluster have corro's operator, and the "
                                           "namespace {}?",
                                           made.status().message(), run_.space)};
    }
    CORRO_TRY(made.status());
    uid_ = text_at(*made, {"metadata", "uid"});
    view_.say(fmt::format("job {} in namespace {}: corro logs, stop and scale know it by this name",
                          run_.name, run_.space));
    return {};
  }

  int give_up(const Status& status) {
    view_.complain(status.message());
    take_back(status);
    return diagnosis::kUsageExit;
  }

  /// Nobody stays with the job: it is deleted if it was made. The server may have done what it was
  /// asked for without an answer.
  void take_back(const Status& made) {
    const bool may_be_there = is_asked_for_ && (made.code() == Code::kUnavailable ||
                                                made.code() == Code::kDeadlineExceeded ||
                                                made.code() == Code::kCancelled);
    if (!made.ok() && !may_be_there) return;
    stop_ = {};
    work_until_signal([this] {
      if (uid_.empty()) find_own();
      if (!uid_.empty()) remove();
    });
  }

  /// A job of this name may be somebody else's.
  void find_own() {
    const Until until(stop_.get_token(), client_.surroundings().now() + kFindPatience);
    const auto job = client_.get(kCorroJobs, key_, until);
    if (job.ok() && text_at(*job, {"metadata", "annotations", kMark}) == mark_) {
      uid_ = text_at(*job, {"metadata", "uid"});
    } else if (!job.ok() && job.status().code() != Code::kNotFound) {
      view_.complain(fmt::format("{}; if job {} was made, corro stop {} deletes it",
                                 job.status().message(), run_.name, run_.name));
    }
  }

  void end_job(int signal) {
    signal_ = signal;
    view_.complain(fmt::format("ends job {}; once more: does not wait for it", run_.name));
    work_until_signal([this] { remove(); });
  }

  /// ABORTED: another job has its name now.
  void remove() {
    const Status removed = client_.remove(kCorroJobs, key_, {.uid = uid_}, stop_.get_token());
    is_gone_ = removed.code() == Code::kNotFound || removed.code() == Code::kAborted;
    if (!removed.ok() && !is_gone_ && removed.code() != Code::kCancelled)
      view_.complain(removed.message());
  }

  int leave() const { return diagnosis::kSignalExit + signal_; }

  /// Returns the exit status once there is nothing more to see.
  std::optional<int> look(const JobWatch::Seen& seen) {
    if (!seen.failure.ok()) {
      view_.complain(seen.failure.message());
      return kJobFailed;
    }
    if (!seen.trouble.empty()) view_.progress(seen.trouble + "; the job goes on");
    if (const auto failed = talk_failure()) {
      view_.complain(failed->message());
      work_until_signal([this] { remove(); });
      return signal_ != 0 ? leave() : kJobFailed;
    }
    talk_with(seen);
    if (seen.is_deleted || is_gone_) return end_with(seen, "was deleted");
    if (!seen.job) return std::nullopt;
    const std::string_view hint = operator_hint_.look(*seen.job, monotonic_now());
    if (!hint.empty() && signal_ == 0) view_.say(std::string(hint));
    const JobFacts facts = facts_of(*seen.job);
    if (facts.is_over) return end_with(seen, facts.why);
    if (facts.is_wrong && signal_ == 0) {
      view_.complain(fmt::format("job {}: {}", run_.name, facts.why));
      work_until_signal([this] { remove(); });
      return signal_ != 0 ? leave() : diagnosis::kUsageExit;
    }
    if (!facts.waits_for.empty() && !facts.runs && signal_ == 0) view_.progress(facts.waits_for);
    return std::nullopt;
  }

  /// What ends all of it. That a log cannot be read any more does not.
  std::optional<Status> talk_failure() {
    const auto outcome = talk_ ? talk_->outcome() : std::nullopt;
    const bool has_failed = outcome && !outcome->ok() && signal_ == 0;
    return has_failed ? outcome : std::nullopt;
  }

  static bool leaves(const JobWatch::Seen& seen, const std::string& pod) {
    const auto found = seen.pods.find(pod);
    return seen.gone.contains(pod) || found == seen.pods.end() ||
           value_at(found->second, {"metadata", "deletionTimestamp"}) != nullptr;
  }

  /// The newest head is talked with; of the one before, the rest of its log is waited for.
  void talk_with(const JobWatch::Seen& seen) {
    if (talk_ && leaves(seen, talk_->head())) talk_->end_folder();
    const Json* head = newest_head(seen.pods);
    if (head == nullptr) return;
    const std::string name = text_at(*head, {"metadata", "name"});
    if (talk_ && talk_->head() == name) return;
    if (talk_ && !talk_->outcome()) {
      talk_->end_folder();
      if (replaced_at_ == Time::never()) replaced_at_ = monotonic_now();
      if (monotonic_now() < replaced_at_ + kLogPatience) return;
    }
    replaced_at_ = Time::never();
    has_run_ = has_run_ || (talk_ && talk_->has_folder());
    talk_.reset();
    talk_ = std::make_unique<HeadTalk>(client_, run_, ObjectKey{run_.space, name}, tree_, !has_run_,
                                       view_);
  }

  /// Waits for the rest of the log, not for ever.
  std::optional<int> end_with(const JobWatch::Seen& seen, const std::string& why) {
    if (over_at_ == Time::never()) over_at_ = monotonic_now();
    if (talk_) talk_->end_folder();
    const bool reads = talk_ && !talk_->outcome() && monotonic_now() < over_at_ + kLogPatience;
    if (reads) return std::nullopt;
    if (signal_ != 0) return leave();
    const JobFacts facts = seen.job ? facts_of(*seen.job) : JobFacts{};
    if (facts.has_succeeded) return 0;
    view_.complain(fmt::format("job {}: {}", run_.name, why));
    if (facts.was_too_long) return diagnosis::kTimeoutExit;
    const auto code = seen.job ? exit_status_of(*seen.job, seen.pods) : std::nullopt;
    return code && *code != 0 ? *code : kJobFailed;
  }

  Client& client_;
  const ClusterRun& run_;
  RunView view_;
  const sigset_t& signals_;
  const ObjectKey key_;
  std::string uid_;
  std::stop_source stop_;
  std::optional<launch::SyncTree> tree_;
  std::unique_ptr<HeadTalk> talk_;
  OperatorHint operator_hint_{monotonic_now()};
  const std::string mark_ = chance();
  bool is_asked_for_ = false;  ///< The job, from the API server.
  bool is_gone_ = false;
  bool has_run_ = false;              ///< A head has got the folder.
  int signal_ = 0;                    ///< By which the end was asked for.
  Time replaced_at_ = Time::never();  ///< The head of talk_, whose log goes on.
  Time over_at_ = Time::never();
};

}  // namespace

int run_on_cluster(Client& client, const ClusterRun& run, const RunManner& manner,
                   const sigset_t& signals) {
  return Course(client, run, manner, signals).run();
}

}  // namespace corro::kube
