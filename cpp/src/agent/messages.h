// What an agent and whoever commands it say to each other. Bytes: docs/wire.md.
//
//   commander                              agent
//      <- HELLO                            once it is there
//   SURVEY ->                              in a job of several hosts, as are PROBE, RECORD and LEFT
//      <- SURVEYED
//   SYNC ->                                --sync: which files its host should have
//      <- LACKING, WANT                    how much is missing there, and a part of it
//   PART ->
//   PROBE ->                               which addresses of the other hosts lead to them?
//      <- REACHED
//   CALL ->                                what corro.run() has its ranks do, in pieces
//   START ->                               for each of its ranks, and of its table servers
//      <- STARTED or REFUSED
//   MEMBERS ->                             once all were started: who they are, on all hosts. With
//                                          it the epoch begins; who is not listed is ended
//      <- JOINED, OUTPUT, OUTPUT_END, ENDED, TROUBLE
//   PREPARE ->                             members come or go: those of this host are to leave their
//                                          engines. MEMBERS of that epoch follows
//      <- READY_FOR_EPOCH                  of each member that has, and of each that is to join
//      <- NOTICE                           a rank tells people: of a checkpoint, or of a plan
//   RECORD, LEFT                           both ways: what ranks of one host have to tell those of
//                                          others before they are connected
//   EXAMINE, READ_CLOCK, MEASURE ->        what `corro doctor` asks instead of starting ranks
//      <- EXAMINED, CLOCK, MEASURED
//   CREDIT                               both ways: of OUTPUT and of INPUT so much was taken
//   SIGNAL, ASK, LOOK, RESIZE, INPUT ->
//      <- SEEN, ALIVE                      after LOOK: for each rank and server that runs, and at the
//                                          end
//   STACKS ->                              what are the ranks' Python stacks?
//      <- STACK                            of each that runs, as soon as it has answered
//   TRACE ->                               which operations do the ranks remember?
//      <- TRACED                           of each that runs
//   GROW ->                                starts an agent on another host, as a branch of this one
//      <- CUT                              a branch has ended; what it said before was passed on
//   FORWARD                                both ways: a message for a branch, or of one
//   FENCE ->                               ends whatever is left, of all ranks
//      <- ENDED again, FENCED              nothing comes after it
//   RELEASE ->                             as FENCE, but what is left goes on
//
// An agent may dial its commander, which is a coordinator then (docs/design/0030-coordinator.md),
// and another one when that is gone:
//
//      <- HELLO                            on each connection
//   LEAD ->                                in which term
//      <- STARTED, JOINED, READY_FOR_EPOCH, LEAVING, NOTICE, ENDED, ALIVE
//                                          what it has said of its processes, once more
//
// In a pod nobody listens but the job's head, which joins a commander and an agent that have
// dialled it (docs/design/0023-pods.md), and then passes on what is above:
//
//   pod's agent                            head                                     `corro rsh`
//   ENLIST ->                              of a host                                <- REACH
//      <- ATTEND                           a session is wanted; LOOK, ALIVE as above
//   SESSION ->                             of that session, on a connection of its own
//      <- READY                            to both                               READY ->
//   LEAVE ->                               it is being ended
//   TROUBLE ->                             the kernel has killed there for lack of memory
//   PROPOSE ->                             its command has failed: once more?
//      <- PROCEED, or DISMISS              a host was lost meanwhile, or the job is over
//      <- RESET                            ends what sessions have left
//      <- HOST_LOST                        for a launcher, which may wait for it in vain
//   HOST_LOST ->                           of a launcher, for shells that may wait in vain
//
// Every message says of which job and epoch it is, and of which process: its member and the
// incarnation of that. What does not fit the process that runs is of another time, and dropped, and
// so is whatever is of an older epoch than the last MEMBERS (membership.h). An agent whose
// commander is gone ends every process at once.
#pragma once

#include <sys/ioctl.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "agent/host_facts.h"
#include "agent/machine.h"
#include "agent/routes.h"
#include "agent/speed_test.h"
#include "agent/synced_file.h"
#include "agent/worker.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/variables.h"
#include "diagnosis/verdict.h"
#include "io/output.h"
#include "obs/flight_trace.h"
#include "wire/bootstrap.h"
#include "wire/digest.h"
#include "wire/notice.h"

namespace corro::agent {

inline constexpr uint32_t kMessagesVersion = 14;
inline constexpr size_t kMaxMessageBytes = size_t{16} << 20U;
/// Of the bytes of one OUTPUT.
inline constexpr size_t kMaxOutputBytes = size_t{64} << 10U;
/// Of the bytes of one PART.
inline constexpr size_t kMaxPartBytes = size_t{256} << 10U;
/// Of those of one CALL.
inline constexpr size_t kCallPiece = size_t{1} << 20U;
/// An agent sends so many bytes of output before it waits for CREDIT.
inline constexpr size_t kOutputCredit = size_t{1} << 20U;
/// A commander sends so many bytes of input to a rank before it waits for CREDIT.
inline constexpr size_t kInputCredit = size_t{1} << 20U;

/// Names a process of the job for as long as the job lasts.
using MemberUuid = std::array<std::byte, 16>;

/// Whom a message is about.
/// The epoch of a process that joins a job which has begun, until MEMBERS lists it.
inline constexpr uint32_t kNoEpochYet = UINT32_MAX;

struct Subject {
  wire::Digest job{};  ///< digest_of() the job's name.
  uint32_t epoch = 0;
  /// -1: all ranks of the host, or the agent itself; a table server's number is no rank's
  /// (wire/server_number.h).
  int32_t rank = -1;
  MemberUuid member{};       ///< Zero where rank is -1.
  uint32_t incarnation = 0;  ///< Which process of this member it is, from 1; 0 where rank is -1.
  bool operator==(const Subject&) const = default;
};

// -- from the agent -------------------------------------------------------------------------------

struct Hello {
  uint32_t version = kMessagesVersion;
  std::string corro;  ///< Version of the program.
  std::string host;
  int32_t pid = 0;
  // Of an agent that dials:
  int32_t slots = 0;      ///< For ranks on its host; 0: its commander knows.
  uint64_t term = 0;      ///< Of the coordinator that it had last; 0: it had none.
  uint32_t prepared = 0;  ///< The newest epoch that it was told of.
};
struct Started {
  int32_t pid = 0;
};
/// It could not be started.
struct Refused {
  Code code = Code::kInternal;
  std::string why;
};
/// The rank has met its agent: it is in corro.init().
struct Joined {};
struct Output {
  io::Output stream = io::Output::kOut;
  std::string bytes;
};
struct OutputEnd {
  io::Output stream = io::Output::kOut;
};
/// Its process has ended. Said again before FENCED, when all that it has printed was read.
struct Ended {
  diagnosis::RankEnd end;  ///< Without `when`.
  Duration clock{};        ///< The agent's, by which the operations' times are.
};
/// What a running rank does, or a table server has, in the same form.
struct Seen {
  diagnosis::RankEnd end;
  Duration clock{};
};
/// For the user's eyes; the job goes on.
struct Trouble {
  std::string text;
};
struct Fenced {
  bool left = false;  ///< Some processes cannot be killed.
};
/// All that a look has found was said.
struct Alive {};
/// What there is on this host.
struct Surveyed {
  Machine machine;
  std::string architecture;  ///< As uname -m.
  std::string program;       ///< Name of the file that is run, without links: "python3.12".
  std::string missing;       ///< What of a rank's needs, and why: "/x is not there"; "": nothing.
  int32_t free_port = 0;     ///< For torch's store, if rank 0 is here.
  RouteTarget here;          ///< Without the number of the host.
  std::vector<std::string> interfaces = {};  ///< That of each address.
  std::string host_id = {};                  ///< Equal on what is one host for the engine.
};
/// What the probe has reached, and by which addresses.
struct Reached {
  std::vector<Route> routes;
};
/// What is missing of the files of SYNC: said once all were looked at, from time to time, and when
/// nothing is missing.
struct Lacking {
  uint32_t files = 0;
  uint64_t bytes = 0;
};
/// Asks for a PART.
struct Want {
  uint32_t file = 0;  ///< Its number in the list.
  uint64_t offset = 0;
};
/// A branch has ended.
struct Cut {
  int32_t host = 0;
  std::string why;
};
/// More of what there is on this host.
struct Examined {
  HostFacts facts;
};
/// What time it is on this host.
struct Clock {
  Duration since_1970{};
};
/// How fast the way to a host is.
struct Measured {
  int32_t host = 0;
  Speed speed;
};

/// The Python stacks of a rank, as py-spy or faulthandler has written them.
struct Stack {
  std::string text;
  std::string missing;  ///< Why there are none.
};

/// The operations of some steps that a rank's flight recorder has.
struct Traced {
  std::optional<obs::ProcessTrace> process;  ///< None: the rank has no engine.
  Duration clock{};                          ///< The agent's, by which their times are.
};

// -- both ways ------------------------------------------------------------------------------------

/// What a rank has put into the bootstrap.
struct Record {
  std::string key;
  Bytes value;
};
/// The rank has ended in good order and will not join.
struct Left {};
/// A message for the agent of another host, or of it, which is a branch of the agent that hears or
/// says this.
struct Forward {
  int32_t host = 0;  ///< Its number in the job.
  Bytes message;     ///< Of encode_message().
};

// -- from the commander ---------------------------------------------------------------------------

/// Starts a rank, or a table server. Those of a host are started in the order of these messages.
struct Start {
  std::string job;         ///< Its name.
  std::string agent = {};  ///< Name of the agent's socket for workers; the same in each of these.
  wire::Secret secret = {};
  int32_t size = 1;     ///< Ranks of the job.
  int32_t servers = 0;  ///< Its table servers.
  std::string program;  ///< "": the one that the agent has, with its arguments.
  std::vector<std::string> arguments;
  std::string directory = {};  ///< "": where the agent is.
  Variables environment = {};
  bool adds_environment = false;         ///< To the agent's own; else it is all there is.
  std::vector<int32_t> processors = {};  ///< Empty: anywhere.
  StandardInput input = StandardInput::kNone;
  std::optional<winsize> out_terminal = {}, err_terminal = {};
};
struct Signal {
  int32_t number = 0;
  bool ends = false;  ///< The job is being ended: what a rank says from now on is no cause.
};
/// Others wait for this rank: it is asked where it is. The answer is in its end.
struct Ask {};
/// Asks what each running rank does.
struct Look {};
/// Asks each running rank for its Python stacks.
struct Stacks {};
/// Asks what each running rank did in its last steps, and does in this one.
struct Trace {
  uint32_t steps = 1;
};
/// So many bytes were taken: as many more may be sent. From the commander: of output. From the
/// agent: of the input of the rank that it is about.
struct Credit {
  uint64_t bytes = 0;
};
/// The user's terminals have these sizes now.
struct Resize {
  std::optional<winsize> out = {}, err = {};
};
/// What a rank will need there.
struct Survey {
  std::string program, directory;
  std::string script;  ///< That an interpreter will read, in the folder; "": none.
};
struct Probe {
  std::vector<RouteTarget> targets;
};
/// Which files the host should have below `root`; a long list comes in several messages.
struct Sync {
  std::string root;
  std::vector<SyncedFile> files;
  bool last = false;
};
/// Up to kMaxPartBytes of a file, fewer only at its end.
struct Part {
  uint32_t file = 0;
  uint64_t offset = 0;
  Bytes bytes;
};
/// For the standard input of a rank that has it from here.
struct Input {
  std::string bytes;
  bool ends = false;  ///< Nothing comes after it.
};
/// Asks for EXAMINED. From now on this host answers speed tests that show the key.
struct Examine {
  std::string python;  ///< That ranks would run; "": none.
  SpeedKey key{};
};
struct ReadClock {};
/// One at a time.
struct Measure {
  RouteTarget target;  ///< With one address.
  SpeedKey key{};
  Duration span{};      ///< Of the bytes that are sent.
  Duration patience{};  ///< For all of it.
};
/// The next piece of a call that the ranks carry out: those started after it get all pieces.
struct Call {
  std::string bytes;
};
/// A process of the job, on whichever host.
struct Member {
  int32_t rank = 0;  ///< In this epoch.
  MemberUuid uuid{};
  uint32_t incarnation = 0;
  int32_t host = 0;  ///< Its number in the list of hosts.
  bool operator==(const Member&) const = default;
};
/// Who takes part in the epoch that the message is of; nobody else does.
struct Members {
  std::vector<std::string> hosts;  ///< Names for people, as the user gave them.
  std::vector<Member> members;     ///< By rank.
  bool last = false;               ///< They are to save what they have, and to end.
};
struct Fence {
  Duration grace{};  ///< So long what ranks have left running may go on.
};
/// Ends the agent; what ranks have left running goes on.
struct Release {};
/// Starts the agent of another host.
struct Grow {
  int32_t host = 0;                ///< Its number in the job.
  std::string name;                ///< For the remote shell.
  std::vector<std::string> shell;  ///< The remote shell's words before the name.
  std::string corro;               ///< The program's path there.
};

// -- between a pod and the head of its job --------------------------------------------------------

/// Names two connections that the head joins.
using SessionId = std::array<std::byte, 16>;

/// The first word of a pod's agent.
struct Enlist {
  uint32_t version = kMessagesVersion;
  std::string corro = {};    ///< Version of the program.
  std::string program = {};  ///< Its path there.
  /// What ranks of a CorroJob run there, its program's path first; of others empty.
  std::vector<std::string> command = {};
  std::string directory = {};  ///< Where they run it.
};
/// The first word of `corro rsh`: a commander for the agent of this host.
struct Reach {
  std::string host;
};
/// Dial once more, for this session.
struct Attend {
  SessionId session{};
};
/// The first word on a connection that was asked for.
struct Session {
  SessionId session{};
};
/// The other side of the session is there; from here on it is heard.
struct Ready {};
/// The pod is being ended: what fails from now on is no fault of its own.
struct Leave {};
/// The pod's command has ended with this status, as of a shell. Should it run once more?
struct Propose {
  int32_t status = 0;
  bool saw_loss = false;  ///< Of the head, and of what it knew, or of a host of its hostfile.
};
/// It should.
struct Proceed {};
/// Nothing more is to be done: the pod ends with this status.
struct Dismiss {
  int32_t status = 0;
  std::string why;  ///< "": all is well.
};
/// Ends what sessions have left running.
struct Reset {};
/// Nothing is heard of this host any more, or, from a launcher, its hostfile names it no more:
/// whoever waits for it may wait for ever.
struct HostLost {
  std::string host;
};
/// The secret of the ranks that a launcher starts in the job's pods: now they can meet there.
struct Meeting {
  wire::Secret secret{};
};

// -- between two epochs ---------------------------------------------------------------------------

/// The epoch that the message is of comes.
struct Prepare {
  std::string why;
  bool at_once = true;  ///< Else members leave their engines at the end of a step.
};
/// The member has left its engine, or is new in the job and has none.
struct ReadyForEpoch {
  uint32_t epoch = 0;  ///< That it waits for; its last one, if it has left that unasked.
  uint64_t steps = 0;  ///< That it has applied.
  int32_t lost = -1;   ///< The rank of its last epoch whose loss has ended that for it; -1: none.
};

/// The member was asked to end, and wants to leave at the end of a step; or all of a host do.
struct Leaving {};

/// The member tells people. The last one of each kind is said again to a coordinator that comes later.
struct Notice {
  wire::Notice said;
  Duration age{};  ///< So long ago the agent has heard of it.
};

// -- from a coordinator ---------------------------------------------------------------------------

/// Its first word: it leads in this term. An agent that knows of a later one does not hear it.
struct Lead {
  uint64_t term = 0;
};

/// The order is that of the kinds on the wire, from 1.
using MessageBody =
    std::variant<Hello, Started, Refused, Joined, Output, OutputEnd, Ended, Seen, Trouble, Fenced,
                 Start, Signal, Ask, Look, Credit, Resize, Fence, Alive, Surveyed, Reached, Record,
                 Left, Survey, Probe, Input, Grow, Cut, Forward, Sync, Lacking, Want, Part, Examine,
                 Examined, ReadClock, Clock, Measure, Measured, Call, Stacks, Stack, Members,
                 Release, Enlist, Reach, Attend, Session, Ready, Leave, Propose, Proceed, Dismiss,
                 Reset, HostLost, Meeting, Prepare, ReadyForEpoch, Leaving, Lead, Notice, Trace,
                 Traced>;

struct Message {
  Subject about;
  MessageBody body;
};

/// With its length in front.
[[nodiscard]] Bytes encode_message(const Message& message);
/// Reads what follows the length. INVALID_ARGUMENT unless encode_message() writes exactly this.
[[nodiscard]] Result<Message> decode_message(BytesView bytes);

}  // namespace corro::agent
