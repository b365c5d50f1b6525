// How corro gets into a pod: all strings that the agent's side (pod/settings.h) has to agree with
// are in injection.cc.
//
//   init container   copies the static program from the agent's image to an emptyDir at /corro/bin
//   /corro/token     the member's key, of the head those of all parts: a Secret's items, so memory,
//                    mounted read-only
//   command          the container's command becomes the child of `corro agent`; in a CorroJob its
//                    ranks run it
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kube/job/names.h"
#include "kube/reconcile/observed.h"

namespace corro::kube {

inline constexpr int kHeadPort = 7077;
/// A termination message of the agent that begins so says that the kernel killed a rank for its
/// memory.
inline constexpr std::string_view kOutOfMemoryMark = "corro: out of memory";
/// One that begins so, with this exit code, says that the agent has lost the head: nobody's fault.
inline constexpr std::string_view kLostHeadMark = "corro: the head at ";
inline constexpr int kLostHeadExit = 75;
/// Of an elastic job's head, whose coordinator has led the job to its end: that its ranks have
/// failed; and that so many workers were lost or drained that nobody could go on. A head that says
/// neither was lost itself.
inline constexpr std::string_view kJobFailedMark = "corro: the job has failed: ";
inline constexpr std::string_view kLostWorkersMark = "corro: too few workers are left: ";
/// A variable of the container that the agent is in: which member it is.
inline constexpr std::string_view kMemberVariable = "CORRO_MEMBER";
/// What mpirun calls in place of ssh.
inline constexpr std::string_view kRemoteShell = "/corro/bin/ssh";

/// Who a pod is, for the agent inside.
struct Identity {
  Member member = Member::kWorker;
  int index = 0;
  int generation = 0;
  std::string head_address;  ///< "10.96.0.7:7077"; "" in the head itself.
};

/// Adds init container, volumes, mounts and variables to a pod's spec, for its container 0.
void inject_agent(const JobSpec& spec, const Identity& identity, const Options& options,
                  Json& pod_spec);

/// Makes container 0's command a child of the agent; without one (or with sshd, or an empty text as
/// the older examples have) the agent runs alone.
void wrap_worker_command(const JobSpec& spec, Json& container);

/// Makes the launcher's command a child of the agent. False if there is no command: then the
/// image's entrypoint stays, and mpirun is not started again after a loss.
bool wrap_launcher_command(Json& container);

/// The whole spec of the head's pod, in this round of the job.
[[nodiscard]] Json head_pod_spec(const JobSpec& spec, int generation, int round,
                                 const Options& options);

/// Adds a variable to a container, after those it has.
void add_variable(Json& container, std::string_view name, std::string_view value);

/// Appends to a list of an object, which is made if it is not there.
void append(Json& object, std::string_view list, Json item);

}  // namespace corro::kube
