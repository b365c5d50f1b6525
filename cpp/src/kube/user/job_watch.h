// JobWatch: a job and its pods as the API server has them now, for one who looks at them again and
// again. Two threads of its own follow the changes.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <thread>

#include "base/guarded.h"
#include "kube/client/client.h"
#include "kube/client/watch.h"

namespace corro::kube {

class JobWatch {
 public:
  struct Seen {
    std::optional<Json> job = {};  ///< None: not seen yet, or deleted.
    bool is_deleted = false;       ///< It was there.
    std::map<std::string, Json> pods =
        {};                           ///< By name; those that are gone stay as they were last.
    std::set<std::string> gone = {};  ///< Names of pods that are gone.
    std::string trouble = {};         ///< Why nothing new comes at the moment; "": it does.
    Status failure = {};              ///< Nothing new will come.
  };

  /// `client` outlives it. `uid`: of the job.
  JobWatch(Client& client, const ObjectKey& job, const std::string& uid);
  ~JobWatch();
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  /// Copies what there is, if it has changed since the last call.
  void take_news(Seen& seen);

 private:
  /// What a watch is about.
  enum class Kind : uint8_t { kJob, kPod };
  void follow(Client& client, const WatchRequest& request, Kind kind);
  void take(const WatchEvent& event, Kind kind);
  void keep(const Json& object, bool is_deleted, Kind kind, Seen& seen) const;

  const std::string uid_;
  struct News {
    Seen seen = {};
    bool are_new = true;
  };
  Guarded<News> news_;
  std::stop_source stop_;
  std::thread jobs_, pods_;
};

}  // namespace corro::kube
