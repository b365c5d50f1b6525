// Performer: an action of a decision, made a call of the API, and what its answer means.
#pragma once

#include <functional>
#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "kube/client/client.h"
#include "kube/operator/kinds.h"
#include "kube/operator/operator_metrics.h"
#include "kube/reconcile/action.h"

namespace corro::kube {

/// How an action ended.
enum class Ended : uint8_t {
  kDone,     ///< It is as was asked for, perhaps since before.
  kStale,    ///< It was decided on an old view.
  kForeign,  ///< The name belongs to an object of somebody else.
  kRefused,  ///< The server does not take the object; the message says why.
  kFailed,   ///< No answer, or not allowed: again later.
};

struct Outcome {
  Ended ended = Ended::kDone;
  std::string message = {};
  Json answer = {};       ///< The object as the server has it, after a create, patch or status.
  bool is_wrong = false;  ///< Refused for what it is (400, 422), and not by a quota or a role.
};

/// Whose action it is.
struct JobIdentity {
  std::string kind;
  std::string space;
  std::string name;
  std::string uid;
};

/// Makes what of a Secret is random: its data, not encoded yet.
using FillSecret = std::function<Result<std::map<std::string, std::string>>(const JobIdentity& job,
                                                                            const Action& action)>;

/// Thread-safe.
class Performer {
 public:
  /// `me` names this operator in events. Borrows client and metrics.
  Performer(Client& client, std::string me, FillSecret fill, OperatorMetrics& metrics)
      : client_(client), me_(std::move(me)), fill_(std::move(fill)), metrics_(metrics) {}

  /// Blocks until the server has answered, as Client's calls do.
  [[nodiscard]] Outcome perform(const std::vector<Kind>& kinds, const JobIdentity& job,
                                const Action& action, const std::stop_token& stop);
  /// The outcome of a create whose answer is not known: kDone with the object if it is the
  /// job's, kStale if there is none, or of its kind none may be read.
  [[nodiscard]] Outcome look_up(const std::vector<Kind>& kinds, const JobIdentity& job,
                                const std::string& api_version, const ObjectName& object,
                                const std::stop_token& stop);
  /// The job as the server has it now.
  [[nodiscard]] Result<Json> read_job(const JobIdentity& job, const std::stop_token& stop);

 private:
  [[nodiscard]] Outcome create(const Kind& kind, const JobIdentity& job, const Action& action,
                               const std::stop_token& stop);
  [[nodiscard]] Outcome look_up(const Kind& kind, const JobIdentity& job, const std::string& name,
                                const std::stop_token& stop);
  [[nodiscard]] Outcome create_event(const JobIdentity& job, const Action& action,
                                     const std::stop_token& stop);
  [[nodiscard]] Outcome remove(const Kind& kind, const ObjectKey& key, const Json& body,
                               const std::stop_token& stop);

  Client& client_;
  const std::string me_;
  const FillSecret fill_;
  OperatorMetrics& metrics_;
};

}  // namespace corro::kube
