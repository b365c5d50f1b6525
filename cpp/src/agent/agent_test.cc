#include "agent/agent.h"
#include "agent/agent_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>

#include "agent/processes.h"
#include "io/socket.h"
#include "wire/agent_bootstrap.h"
#include "wire/agent_protocol.h"
#include "wire/server_number.h"

namespace corro::agent {
namespace {

using testing::HasSubstr;

/// An agent in a process of its own, as its commander sees it.
class AgentProcess {
 public:
  AgentProcess() {
    signal(SIGPIPE, SIG_IGN);
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    io::Fd ours(ends[0]);
    io::Fd theirs(ends[1]);
    start_agent([&] {
      ours.reset();
      return Commander(MessagePipe(std::move(theirs)));
    });
    pipe_.emplace(std::move(ours));
  }
  /// One that dials its commander; meet() has to be called.
  explicit AgentProcess(Duration patience)
      : listener_(io::listen_tcp(io::SocketAddress::parse("127.0.0.1:0").value()).value()) {
    signal(SIGPIPE, SIG_IGN);
    const auto address = io::local_address(listener_.get()).value();
    start_agent([&] {
      listener_.reset();
      return Commander(Commander::Dialling{.addresses = {"here"},
                                           .dial = [=](size_t) -> Result<MessagePipe> {
                                             CORRO_ASSIGN(io::Fd fd, io::connect_tcp(address));
                                             return MessagePipe(std::move(fd));
                                           },
                                           .note = [](const std::string&) {},
                                           .host = "node1",
                                           .patience = patience});
    });
  }
  ~AgentProcess() {
    hang_up();
    if (!reaped_) (void)wait();
  }

  /// It has dialled; the connection of before is gone. Returns what it says first.
  Hello meet() {
    if (pipe_) hang_up();
    EXPECT_TRUE(io::wait_ready(listener_.get(), POLLIN, monotonic_now() + std::chrono::minutes(1)));
    pipe_.emplace(io::accept_connection(listener_.get()).value());
    return std::get<Hello>(hear_until<Hello>().back().body);
  }
  /// Whether it hangs up.
  bool hangs_up() {
    const Time until = monotonic_now() + std::chrono::minutes(1);
    while (!pipe_->ended() && io::wait_ready(pipe_->in(), POLLIN, until)) (void)pipe_->read();
    return pipe_->ended();
  }

  void start(int rank, const std::string& script, uint32_t incarnation = 1) {
    tell(subject(rank, incarnation), Start{.job = "test",
                                           .agent = agent_name_,
                                           .size = 4,
                                           .program = "/bin/sh",
                                           .arguments = {"sh", "-c", script},
                                           .environment = {{"PATH", "/usr/bin:/bin"}}});
  }
  void tell(const Subject& about, MessageBody body) { pipe_->send({about, std::move(body)}); }
  static Subject subject(int rank, uint32_t incarnation = 1) {
    Subject about{.job = wire::digest_of("test"), .epoch = 0, .rank = rank};
    if (rank >= 0) about.member[0] = static_cast<std::byte>(rank + 1);
    about.incarnation = rank >= 0 ? incarnation : 0;
    return about;
  }
  static Subject all() { return subject(-1); }
  /// The epoch begins, with these.
  void announce(uint32_t epoch, const std::vector<Subject>& members) {
    Members said{.hosts = {"node1", "node2"}, .members = {}};
    for (const Subject& member : members)
      said.members.push_back({.rank = static_cast<int32_t>(said.members.size()),
                              .uuid = member.member,
                              .incarnation = member.incarnation,
                              .host = 1});
    Subject about = all();
    about.epoch = epoch;
    tell(about, std::move(said));
  }

  /// Everything up to and with the first message for which `is_last` is true; gives credit.
  std::vector<Message> hear_until(const std::function<bool(const Message&)>& is_last,
                                  bool gives_credit = true) {
    std::vector<Message> heard;
    while (true) {
      while (auto message = pipe_->take()) {
        if (const auto* output = std::get_if<Output>(&message->body); output && gives_credit)
          tell(all(), Credit{.bytes = output->bytes.size()});
        heard.push_back(std::move(*message));
        if (is_last(heard.back())) return heard;
      }
      if (pipe_->ended()) {
        ADD_FAILURE() << "the agent has gone";
        return heard;
      }
      pipe_->flush();
      const short room = pipe_->unsent() ? POLLOUT : 0;
      pollfd ready{.fd = pipe_->in(), .events = static_cast<short>(POLLIN | room), .revents = 0};
      constexpr int kPatience = 60'000;
      if (poll(&ready, 1, kPatience) <= 0) {
        ADD_FAILURE() << "the agent does not say it";
        return heard;
      }
      EXPECT_TRUE(pipe_->read().ok());
    }
  }
  template <typename T>
  std::vector<Message> hear_until(int rank = -1) {
    return hear_until([rank](const Message& message) {
      return std::holds_alternative<T>(message.body) && message.about.rank == rank;
    });
  }
  /// True if nothing readable comes for a moment.
  bool is_quiet() {
    pollfd ready{.fd = pipe_->in(), .events = POLLIN, .revents = 0};
    return poll(&ready, 1, 200) == 0;
  }

  void hang_up() {
    if (pipe_) pipe_->close();
  }
  int wait() {
    int status = -1;
    waitpid(pid_, &status, 0);
    reaped_ = true;
    return status;
  }
  [[nodiscard]] const std::string& name() const { return agent_name_; }

 private:
  void start_agent(const std::function<Commander()>& commander) {
    pid_ = fork();
    agent_name_ = "corro-agent-test-" + std::to_string(pid_);
    if (pid_ != 0) return;
    sigset_t children;
    sigset_t before;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, &before);
    adopt_orphans();
    _exit(run_agent(commander(), before, "test"));
  }

  io::Fd listener_;
  pid_t pid_ = 0;
  bool reaped_ = false;
  std::string agent_name_;
  std::optional<MessagePipe> pipe_;
};

std::string output_of(const std::vector<Message>& heard, int rank, io::Output stream) {
  std::string text;
  for (const Message& message : heard) {
    const auto* output = std::get_if<Output>(&message.body);
    if (output != nullptr && message.about.rank == rank && output->stream == stream)
      text += output->bytes;
  }
  return text;
}

/// For input of rank 0.
uint64_t credit_in(const std::vector<Message>& heard) {
  uint64_t bytes = 0;
  for (const Message& message : heard) {
    const auto* credit = std::get_if<Credit>(&message.body);
    if (credit != nullptr && message.about.rank == 0) bytes += credit->bytes;
  }
  return bytes;
}

/// The last that was said of a rank's end.
const diagnosis::RankEnd& end_of(const std::vector<Message>& heard, int rank) {
  const diagnosis::RankEnd* found = nullptr;
  for (const Message& message : heard) {
    const auto* ended = std::get_if<Ended>(&message.body);
    if (ended != nullptr && message.about.rank == rank) found = &ended->end;
  }
  static const diagnosis::RankEnd none{.rank = -1};
  return found == nullptr ? none : *found;
}

TEST(Agent, ThatDialsGoesOnWithItsRanksUnderAnotherCoordinator) {
  AgentProcess agent(std::chrono::minutes(1));
  EXPECT_EQ(agent.meet().term, 0U);
  agent.tell(AgentProcess::all(), Lead{.term = 2});
  (void)agent.hear_until<Alive>();
  agent.start(0, "echo begun; exec sleep 60");
  const auto begun = agent.hear_until<Started>(0);
  agent.announce(0, {AgentProcess::subject(0)});
  (void)agent.hear_until<Output>(0);
  // One of an older term is not heard, whatever it says.
  EXPECT_EQ(agent.meet().term, 2U);
  agent.tell(AgentProcess::all(), Lead{.term = 1});
  agent.tell(AgentProcess::subject(0), Signal{.number = SIGKILL});
  EXPECT_TRUE(agent.hangs_up());
  (void)agent.meet();
  agent.tell(AgentProcess::all(), Lead{.term = 3});
  const auto said = agent.hear_until<Alive>();
  EXPECT_EQ(std::get<Started>(said.at(0).body).pid, std::get<Started>(begun.back().body).pid);
  agent.tell(AgentProcess::subject(0), Signal{.number = SIGTERM});
  EXPECT_EQ(end_of(agent.hear_until<Ended>(0), 0).status, SIGTERM) << "it has lived until now";
  agent.tell(AgentProcess::all(), Fence{});
  (void)agent.hear_until<Fenced>();
  EXPECT_EQ(agent.wait(), 0);
}

TEST(Agent, ThatDialsEndsEverythingWhenNobodyLeadsForTooLong) {
  AgentProcess agent(std::chrono::seconds(1));
  (void)agent.meet();
  agent.tell(AgentProcess::all(), Lead{.term = 1});
  agent.start(0, "sleep 60");
  const auto started = agent.hear_until<Started>(0);
  agent.hang_up();
  constexpr int kTryLater = 75;
  EXPECT_EQ(agent.wait(), W_EXITCODE(kTryLater, 0));
  EXPECT_NE(kill(std::get<Started>(started.back().body).pid, 0), 0);
}

TEST(Agent, ThatHasItsCommanderFromTheBeginningOnHearsNoCoordinator) {
  AgentProcess agent;
  agent.tell(AgentProcess::all(), Lead{.term = 1});
  agent.tell(AgentProcess::all(), Refused{.why = "no"});
  agent.start(0, "exit 3");
  EXPECT_EQ(end_of(agent.hear_until<Ended>(0), 0).status, W_EXITCODE(3, 0));
}

TEST(Agent, AReleaseLeavesWhatRanksHaveLeftRunning) {
  AgentProcess agent;
  agent.start(0, "sleep 60 >/dev/null 2>&1 </dev/null & echo $!");
  const auto heard = agent.hear_until<Ended>(0);
  agent.tell(AgentProcess::all(), Release{});
  auto rest = agent.hear_until<Fenced>();
  rest.insert(rest.begin(), heard.begin(), heard.end());
  EXPECT_EQ(agent.wait(), 0);
  const pid_t left = std::stoi(output_of(rest, 0, io::Output::kOut));
  EXPECT_EQ(kill(left, 0), 0) << "it was ended";
  kill(left, SIGKILL);
}

TEST(Agent, CarriesOutputAndEndsOfItsRanks) {
  AgentProcess agent;
  agent.start(0, "echo one; echo two >&2");
  agent.start(2, "echo 'Error: bad' >&2; exit 3");
  const auto heard = agent.hear_until<Ended>(0);
  ASSERT_FALSE(heard.empty());
  EXPECT_TRUE(std::holds_alternative<Hello>(heard[0].body));
  agent.tell(AgentProcess::all(), Fence{.grace = std::chrono::seconds(60)});
  auto rest = agent.hear_until<Fenced>();
  rest.insert(rest.begin(), heard.begin(), heard.end());
  EXPECT_EQ(output_of(rest, 0, io::Output::kOut), "one\n");
  EXPECT_EQ(output_of(rest, 0, io::Output::kErr), "two\n");
  EXPECT_EQ(WEXITSTATUS(end_of(rest, 0).status), 0);
  EXPECT_EQ(WEXITSTATUS(end_of(rest, 2).status), 3);
  EXPECT_EQ(end_of(rest, 2).crash.last_line, "Error: bad");
  EXPECT_FALSE(std::get<Fenced>(rest.back().body).left);
  EXPECT_EQ(agent.wait(), 0);
}

TEST(Agent, SaysWhatCannotBeStarted) {
  AgentProcess agent;
  agent.tell(AgentProcess::subject(1), Start{.job = "test",
                                             .size = 2,
                                             .program = "/no/such/program",
                                             .arguments = {"program"},
                                             .environment = {}});
  const auto heard = agent.hear_until<Refused>(1);
  ASSERT_FALSE(heard.empty());
  const auto& refused = std::get<Refused>(heard.back().body);
  EXPECT_EQ(refused.code, Code::kNotFound);
  EXPECT_THAT(refused.why, HasSubstr("/no/such/program"));
}

TEST(Agent, AMessageOfAnotherJobEpochOrIncarnationIsDropped) {
  AgentProcess agent;
  agent.start(0, "trap 'echo heard; exit 0' USR1; echo ready; while :; do sleep 0.01; done", 2);
  (void)agent.hear_until<Output>(0);
  Subject other_job = AgentProcess::subject(0, 2);
  other_job.job = wire::digest_of("another");
  Subject later = AgentProcess::subject(0, 2);
  later.epoch = 1;
  for (const Subject& about : {other_job, later, AgentProcess::subject(0, 1)})
    agent.tell(about, Signal{.number = SIGUSR1});
  EXPECT_TRUE(agent.is_quiet());
  agent.tell(AgentProcess::subject(0, 2), Signal{.number = SIGUSR1});
  const auto heard = agent.hear_until<Ended>(0);
  EXPECT_EQ(output_of(heard, 0, io::Output::kOut), "heard\n");
}

TEST(Agent, AProcessThatIsNoMemberIsEndedAndSaid) {
  AgentProcess agent;
  agent.start(0, "echo 0; sleep 1000");
  (void)agent.hear_until<Output>(0);
  agent.start(1, "trap '' TERM; sleep 1000 & echo $!; wait");
  const pid_t below = std::stoi(output_of(agent.hear_until<Output>(1), 1, io::Output::kOut));
  agent.announce(0, {AgentProcess::subject(0), AgentProcess::subject(7)});
  const auto heard = agent.hear_until<Ended>(1);
  const auto trouble = std::ranges::find_if(
      heard, [](const Message& message) { return std::holds_alternative<Trouble>(message.body); });
  ASSERT_NE(trouble, heard.end());
  EXPECT_THAT(std::get<Trouble>(trouble->body).text,
              testing::MatchesRegex("process [0-9]+ on .+ is not a member of epoch 0, and was "
                                    "ended"));
  EXPECT_EQ(WTERMSIG(end_of(heard, 1).status), SIGKILL);
  EXPECT_TRUE(end_of(heard, 1).stopped) << "nobody's failure";
  EXPECT_EQ(end_of(heard, 1).out_of_memory, "");
  const Time patience = monotonic_now() + std::chrono::minutes(1);
  while (process_state(below) != '?' && monotonic_now() < patience) poll(nullptr, 0, 1);
  EXPECT_EQ(process_state(below), '?') << "what is below it is ended, too";
  agent.tell(AgentProcess::all(), Look{});
  (void)agent.hear_until<Seen>(0);  // The member goes on.
}

TEST(Agent, AnOlderIncarnationOfAMemberIsEnded) {
  AgentProcess agent;
  agent.start(0, "sleep 1000", 1);
  (void)agent.hear_until<Started>(0);
  agent.announce(0, {AgentProcess::subject(0, 2)});
  const auto heard = agent.hear_until<Ended>(0);
  EXPECT_EQ(heard.back().about, AgentProcess::subject(0, 1));
  EXPECT_TRUE(end_of(heard, 0).stopped);
}

TEST(Agent, ARankThatIsNoMemberIsNotStarted) {
  AgentProcess agent;
  agent.announce(0, {AgentProcess::subject(0)});
  agent.start(3, "echo here");
  const auto heard = agent.hear_until<Refused>(3);
  EXPECT_EQ(std::get<Refused>(heard.back().body).why, "rank 3 is not a member of epoch 0");
  agent.start(0, "echo here");
  EXPECT_EQ(output_of(agent.hear_until<Output>(0), 0, io::Output::kOut), "here\n");
}

TEST(Agent, AfterANewerEpochHasBegunWhatIsOfAnOlderOneIsDropped) {
  AgentProcess agent;
  const std::string script =
      "trap 'echo one' USR1; trap 'echo two' USR2; echo ready; while :; do sleep 0.01; done";
  agent.start(1, script);
  (void)agent.hear_until<Output>(1);
  agent.announce(2, {AgentProcess::subject(1)});
  // In the new epoch the member has another number.
  Subject newer = AgentProcess::subject(1);
  newer.epoch = 2;
  newer.rank = 0;
  agent.tell(AgentProcess::subject(1), Signal{.number = SIGUSR1});
  agent.tell(AgentProcess::all(), Signal{.number = SIGUSR1});
  agent.start(3, "echo late");
  agent.announce(1, {AgentProcess::subject(2)});
  agent.tell(newer, Signal{.number = SIGUSR2});
  const auto heard = agent.hear_until<Output>(0);
  ASSERT_EQ(heard.size(), 1U) << "nothing is said of the older epoch";
  EXPECT_EQ(heard[0].about, newer);
  EXPECT_EQ(output_of(heard, 0, io::Output::kOut), "two\n");
  Subject all = AgentProcess::all();
  all.epoch = 2;
  agent.tell(all, Fence{});
  EXPECT_EQ(agent.hear_until<Fenced>().back().about, all);
}

TEST(Agent, RanksOfAnEpochToComeMayBeStartedBeforeItBegins) {
  AgentProcess agent;
  agent.start(0, "sleep 1000");
  agent.announce(0, {AgentProcess::subject(0)});
  Subject joiner = AgentProcess::subject(1);
  joiner.epoch = 1;
  agent.tell(joiner, Start{.job = "test",
                           .agent = agent.name(),
                           .size = 2,
                           .program = "/bin/sh",
                           .arguments = {"sh", "-c", "echo joiner; sleep 1000"},
                           .environment = {{"PATH", "/usr/bin:/bin"}}});
  const auto heard = agent.hear_until<Output>(1);
  EXPECT_EQ(heard.back().about, joiner);
  agent.announce(1, {AgentProcess::subject(0), joiner});
  Subject all = AgentProcess::all();
  all.epoch = 1;
  agent.tell(all, Look{});
  const auto seen = agent.hear_until<Alive>();
  ASSERT_EQ(seen.size(), 3U);
  for (const Message& message : seen) EXPECT_EQ(message.about.epoch, 1U);
}

TEST(Agent, AnEndThatAnEpochMayHaveHiddenIsSaidAgain) {
  AgentProcess agent;
  agent.start(0, "exit 5");
  (void)agent.hear_until<Ended>(0);
  agent.announce(1, {AgentProcess::subject(0)});
  const auto heard = agent.hear_until<Ended>(0);
  EXPECT_EQ(heard.back().about.epoch, 1U);
  EXPECT_EQ(WEXITSTATUS(end_of(heard, 0).status), 5);
}

/// What was seen of a process, by its number.
std::optional<diagnosis::RankEnd> seen_in(const std::vector<Message>& heard, int number) {
  for (const Message& message : heard) {
    const auto* seen = std::get_if<Seen>(&message.body);
    if (seen != nullptr && message.about.rank == number) return seen->end;
  }
  return std::nullopt;
}

/// A recorder with a table of so many rows.
std::unique_ptr<obs::TableRecorder> tables_of(uint64_t rows) {
  auto made = obs::TableRecorder::create().value();
  made->write(made->add("words").value(), {.rows = rows});
  return made;
}

TEST(Agent, SaysWhatTablesServersHaveWhenItLooks) {
  constexpr int kServer = wire::kFirstServer;
  AgentProcess agent;
  const Start start{.job = "test",
                    .agent = agent.name(),
                    .size = 4,
                    .servers = 2,
                    .program = "/bin/sh",
                    .arguments = {"sh", "-c", "sleep 1000"},
                    .environment = {{"PATH", "/usr/bin:/bin"}}};
  for (const int number : {kServer, 1}) agent.tell(AgentProcess::subject(number), start);
  (void)agent.hear_until<Started>(1);
  std::vector<std::unique_ptr<obs::TableRecorder>> recorders;
  std::vector<std::unique_ptr<wire::AgentBootstrap>> connected;
  const auto greet = [&](int number, uint64_t rows) {
    recorders.push_back(tables_of(rows));
    const int fd = recorders.back()->fd();
    connected.push_back(
        wire::AgentBootstrap::connect({.name = agent.name(),
                                       .rank = number,
                                       .descriptors = std::span(&fd, 1),
                                       .deadline = monotonic_now() + std::chrono::minutes(1)})
            .value());
  };
  greet(kServer, 7);      // A process of its own.
  greet(kServer + 1, 8);  // A thread of rank 1.
  greet(kServer + 1, 9);  // A second one, which will be refused.
  agent.tell(AgentProcess::all(), Look{});
  auto heard = agent.hear_until<Alive>();
  EXPECT_EQ(seen_in(heard, kServer)->tables,
            (std::vector<obs::TableCounts>{{.name = "words", .rows = 7}}));
  EXPECT_EQ(seen_in(heard, 1)->tables,
            (std::vector<obs::TableCounts>{{.name = "words", .rows = 8}}));
  const auto has_joined = [&heard](int number) {
    return std::ranges::any_of(heard, [number](const Message& message) {
      return std::holds_alternative<Joined>(message.body) && message.about.rank == number;
    });
  };
  EXPECT_TRUE(has_joined(kServer));
  EXPECT_FALSE(has_joined(1)) << "its engine has said nothing";
  agent.tell(AgentProcess::subject(kServer), Signal{.number = SIGKILL});
  EXPECT_THAT(end_of(agent.hear_until<Ended>(kServer), kServer).tables, testing::IsEmpty());
  agent.tell(AgentProcess::all(), Look{});
  heard = agent.hear_until<Alive>();
  EXPECT_FALSE(seen_in(heard, kServer));
  EXPECT_TRUE(seen_in(heard, 1));
}

/// One packet of a worker's connection; empty if the agent has closed it.
std::optional<wire::AgentMessage> next_packet(int fd) {
  std::array<std::byte, wire::kMaxAgentMessage> packet;
  EXPECT_TRUE(io::wait_ready(fd, POLLIN, monotonic_now() + std::chrono::seconds(60)));
  const io::Received received = io::receive_message(fd, packet);
  if (received.closed) return std::nullopt;
  return wire::decode_agent_message(std::span(packet).first(received.bytes)).value();
}

TEST(Agent, TellsItsRanksOfEpochsAndItsCommanderWhoIsReady) {
  AgentProcess agent;
  agent.start(0, "echo ready; sleep 1000");
  agent.start(1, "echo ready; exec sleep 1000");
  std::set<int> ready;
  (void)agent.hear_until([&ready](const Message& message) {
    if (std::holds_alternative<Output>(message.body)) ready.insert(message.about.rank);
    return ready.size() == 2;
  });
  const io::Fd worker = io::connect_abstract(agent.name()).value();
  const std::string member = wire::to_hex(AgentProcess::subject(1).member);
  const auto send = [&worker](wire::AgentMessage message) {
    EXPECT_TRUE(io::send_message(worker.get(), wire::encode_agent_message(message)).value());
  };
  send({.kind = wire::AgentMessageKind::kFollow, .key = member, .value = {}});
  Subject next = AgentProcess::all();
  next.epoch = 1;
  agent.tell(next, Prepare{.why = "rank 0 was killed"});
  const auto prepare = next_packet(worker.get());
  ASSERT_TRUE(prepare.has_value());
  EXPECT_EQ(prepare->kind, wire::AgentMessageKind::kPrepare);
  EXPECT_EQ(prepare->request, 1U);
  ByteWriter steps;
  steps.write(uint64_t{7});
  steps.write(int32_t{2});
  send({.kind = wire::AgentMessageKind::kReady, .request = 1, .key = {}, .value = steps.take()});
  const auto heard = agent.hear_until<ReadyForEpoch>(1);
  EXPECT_EQ(heard.back().about, AgentProcess::subject(1));
  EXPECT_EQ(std::get<ReadyForEpoch>(heard.back().body).epoch, 1U);
  EXPECT_EQ(std::get<ReadyForEpoch>(heard.back().body).steps, 7U);
  EXPECT_EQ(std::get<ReadyForEpoch>(heard.back().body).lost, 2);
  send({.kind = wire::AgentMessageKind::kLeave, .key = {}, .value = {}});
  EXPECT_EQ(agent.hear_until<Leaving>(1).back().about, AgentProcess::subject(1));
  ASSERT_TRUE(wire::report(agent.name(), member, {.step = 20, .text = "/run/step-20"}).ok());
  const Message notice = agent.hear_until<Notice>(1).back();
  EXPECT_EQ(notice.about, AgentProcess::subject(1));
  EXPECT_EQ(std::get<Notice>(notice.body).said.step, 20U);
  EXPECT_EQ(std::get<Notice>(notice.body).said.text, "/run/step-20");
  agent.announce(1, {AgentProcess::subject(1)});
  const auto commit = next_packet(worker.get());
  ASSERT_TRUE(commit.has_value());
  EXPECT_EQ(commit->kind, wire::AgentMessageKind::kCommit);
  EXPECT_EQ(commit->request, 1U);
  EXPECT_EQ(commit->rank, 0) << "its rank in the new epoch";
}

TEST(Agent, AListOfMembersThatIsNoneIsSaidAndChangesNothing) {
  AgentProcess agent;
  agent.start(0, "sleep 1000");
  (void)agent.hear_until<Started>(0);
  agent.tell(AgentProcess::all(), Members{.hosts = {}, .members = {{.incarnation = 1}}});
  const auto heard = agent.hear_until<Trouble>();
  EXPECT_THAT(std::get<Trouble>(heard.back().body).text, HasSubstr("MEMBERS of epoch 0"));
  agent.tell(AgentProcess::all(), Look{});
  EXPECT_EQ(agent.hear_until<Alive>().size(), 2U);
}

TEST(Agent, WithoutCreditRanksAreHeldBack) {
  AgentProcess agent;
  agent.start(0, "dd if=/dev/zero bs=65536 count=256 2>/dev/null; echo done >&2");
  size_t bytes = 0;
  const auto count = [&bytes](const Message& message) {
    if (const auto* output = std::get_if<Output>(&message.body)) bytes += output->bytes.size();
    return bytes >= kOutputCredit;
  };
  (void)agent.hear_until(count, false);
  EXPECT_TRUE(agent.is_quiet());
  EXPECT_LE(bytes, kOutputCredit + 2 * kMaxOutputBytes);
  agent.tell(AgentProcess::all(), Credit{.bytes = bytes});
  const auto heard = agent.hear_until<Ended>(0);
  EXPECT_EQ(bytes + output_of(heard, 0, io::Output::kOut).size(), size_t{256} * 65536);
}

TEST(Agent, ARankThatIsStartedWhileOthersAreHeldBackIsReadWithThem) {
  AgentProcess agent;
  agent.start(0, "dd if=/dev/zero bs=65536 count=256 2>/dev/null");
  size_t bytes = 0;
  const auto is_spent = [&bytes](const Message& message) {
    if (const auto* output = std::get_if<Output>(&message.body)) bytes += output->bytes.size();
    return bytes >= kOutputCredit;
  };
  (void)agent.hear_until(is_spent, false);
  agent.start(1, "echo here; sleep 1000");
  (void)agent.hear_until<Started>(1);
  agent.tell(AgentProcess::all(), Credit{.bytes = bytes});
  const auto heard = agent.hear_until<Output>(1);
  EXPECT_EQ(output_of(heard, 1, io::Output::kOut), "here\n");
  for (const Message& message : heard) EXPECT_FALSE(std::holds_alternative<Trouble>(message.body));
}

TEST(Agent, CreditForMoreThanItIsGivenAtFirstCountsWhole) {
  AgentProcess agent;
  agent.start(0, "trap 'echo heard' USR1; echo ready; while :; do sleep 0.01; done");
  (void)agent.hear_until<Output>(0);
  // What fits into the pipes is sent when the ranks end, with credit or without.
  constexpr int kRanks = 32;
  size_t bytes = 0;
  int ended = 0;
  for (int rank = 1; rank <= kRanks; ++rank) agent.start(rank, "head -c 65536 /dev/zero");
  const auto is_last_end = [&](const Message& message) {
    if (const auto* output = std::get_if<Output>(&message.body)) bytes += output->bytes.size();
    if (std::holds_alternative<Ended>(message.body)) ++ended;
    return ended == kRanks;
  };
  (void)agent.hear_until(is_last_end, false);
  ASSERT_EQ(bytes, size_t{kRanks} * 65536);
  ASSERT_GT(bytes, kOutputCredit);
  agent.tell(AgentProcess::all(), Credit{.bytes = bytes});
  agent.tell(AgentProcess::subject(0), Signal{.number = SIGUSR1});
  EXPECT_EQ(output_of(agent.hear_until<Output>(0), 0, io::Output::kOut), "heard\n");
}

TEST(Agent, TellsWhetherARankWasStoppedOrEndedByItself) {
  AgentProcess agent;
  agent.start(0, "sleep 1000");
  agent.start(1, "exit 4");
  (void)agent.hear_until<Ended>(1);
  agent.tell(AgentProcess::all(), Signal{.number = SIGTERM, .ends = true});
  const auto heard = agent.hear_until<Ended>(0);
  EXPECT_TRUE(end_of(heard, 0).stopped);
  EXPECT_EQ(WTERMSIG(end_of(heard, 0).status), SIGTERM);
  agent.tell(AgentProcess::all(), Fence{});
  EXPECT_FALSE(end_of(agent.hear_until<Fenced>(), 1).stopped);
}

TEST(Agent, SaysWhatRunningRanksDo) {
  AgentProcess agent;
  agent.start(0, "echo 'KeyError: 7' >&2; sleep 1000");
  (void)agent.hear_until<Output>(0);
  agent.tell(AgentProcess::all(), Look{});
  const auto heard = agent.hear_until<Seen>(0);
  const auto& seen = std::get<Seen>(heard.back().body).end;
  EXPECT_FALSE(seen.ended);
  EXPECT_EQ(seen.crash.last_line, "KeyError: 7");
}

TEST(Agent, AFenceEndsWhatRanksHaveLeftRunning) {
  AgentProcess agent;
  agent.start(0, "setsid sleep 1000 & echo $!");
  const auto heard = agent.hear_until<Ended>(0);
  const pid_t left = std::stoi(output_of(heard, 0, io::Output::kOut));
  EXPECT_EQ(kill(left, 0), 0);
  agent.tell(AgentProcess::all(), Fence{});
  EXPECT_FALSE(std::get<Fenced>(agent.hear_until<Fenced>().back().body).left);
  EXPECT_THAT(process_state(left), testing::AnyOf('?', 'Z'));
}

TEST(Agent, PassesOnWhatWorkersPutAndTakesWhatOthersHavePut) {
  AgentProcess agent;
  agent.tell(AgentProcess::all(),
             Survey{.program = "/bin/sh", .directory = "/tmp", .script = "no-such-script"});
  const auto surveyed = agent.hear_until<Surveyed>();
  const auto& survey = std::get<Surveyed>(surveyed.back().body);
  EXPECT_EQ(survey.missing, "/tmp/no-such-script is not there");
  EXPECT_GE(survey.machine.facts.cores, 1);
  EXPECT_GT(survey.here.port, 0);
  EXPECT_FALSE(survey.host_id.empty());
  agent.tell(AgentProcess::all(),
             Survey{.program = "/etc/passwd", .directory = "/tmp", .script = ""});
  EXPECT_EQ(std::get<Surveyed>(agent.hear_until<Surveyed>().back().body).missing,
            "/etc/passwd cannot be executed there");
  agent.tell(AgentProcess::all(), Record{.key = "test/x/3", .value = {std::byte{5}}});
  agent.start(0, "sleep 1000");
  (void)agent.hear_until<Started>(0);
  auto worker = wire::AgentBootstrap::connect(
      {.name = agent.name(), .rank = 0, .deadline = monotonic_now() + std::chrono::minutes(1)});
  ASSERT_TRUE(worker.ok()) << worker.status().message();
  const auto got = (*worker)->get("test/x/3", monotonic_now() + std::chrono::minutes(1));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(*got, Bytes{std::byte{5}});
  EXPECT_TRUE((*worker)->put("test/x/0", Bytes{std::byte{6}}).ok());
  const auto record = std::get<Record>(agent.hear_until<Record>().back().body);
  EXPECT_EQ(record.key, "test/x/0");
  EXPECT_EQ(record.value, Bytes{std::byte{6}});
  agent.announce(0, {AgentProcess::subject(0), AgentProcess::subject(1), AgentProcess::subject(2)});
  agent.tell(AgentProcess::subject(2, 0), Left{});
  Subject another = AgentProcess::subject(1);
  another.member[0] = std::byte{0x77};
  agent.tell(another, Left{});
  agent.tell(AgentProcess::subject(2), Left{});
  const auto left = (*worker)->get("test/x/2", monotonic_now() + std::chrono::minutes(1)).status();
  EXPECT_EQ(left.code(), Code::kNotFound);
  EXPECT_EQ(left.message(), "rank 2 on node2 ended before it had joined the job");
  const Time moment = monotonic_now() + std::chrono::milliseconds(10);
  EXPECT_EQ((*worker)->get("test/x/1", moment).status().code(), Code::kDeadlineExceeded)
      << "no member has left";
}

TEST(Agent, SaysHowAHostIsAndHowFastTheWayToItIs) {
  AgentProcess agent;
  const SpeedKey key{std::byte{7}};
  agent.tell(agent.all(), Survey{.program = "", .directory = "/tmp", .script = ""});
  RouteTarget target = std::get<Surveyed>(agent.hear_until<Surveyed>().back().body).here;
  agent.tell(agent.all(), Examine{.python = "", .key = key});
  const auto examined = agent.hear_until<Examined>();
  EXPECT_NE(std::get<Examined>(examined.back().body).facts.kernel, "");

  const auto clock = [] { return std::chrono::system_clock::now().time_since_epoch(); };
  const Duration before = clock();
  agent.tell(agent.all(), ReadClock{});
  const auto read = agent.hear_until<Clock>();
  const Duration there = std::get<Clock>(read.back().body).since_1970;
  EXPECT_GE(there, before);
  EXPECT_LE(there, clock());

  target.host = 4;
  target.addresses = {"127.0.0.1"};
  agent.tell(agent.all(), Measure{.target = target,
                                  .key = key,
                                  .span = std::chrono::milliseconds(10),
                                  .patience = std::chrono::minutes(1)});
  const auto heard = agent.hear_until<Measured>();
  const auto& measured = std::get<Measured>(heard.back().body);
  EXPECT_EQ(measured.host, 4);
  EXPECT_EQ(measured.speed.failure, "");
  EXPECT_GT(measured.speed.bytes, 0U);

  target.addresses = {"nowhere"};
  agent.tell(agent.all(), Measure{.target = target, .key = key});
  const auto failed = agent.hear_until<Measured>();
  EXPECT_NE(std::get<Measured>(failed.back().body).speed.failure, "");
}

TEST(Agent, WithItsFirstRankNobodyIsListenedToAnyMore) {
  AgentProcess agent;
  agent.tell(agent.all(), Survey{.program = "", .directory = "/tmp", .script = ""});
  const RouteTarget target = std::get<Surveyed>(agent.hear_until<Surveyed>().back().body).here;
  const auto address =
      io::SocketAddress::parse_host("127.0.0.1", static_cast<uint16_t>(target.port));
  const auto answer = [&] {
    RouteToken token{};
    const auto fd = io::connect_tcp(*address);
    if (!fd.ok()) return false;
    (void)io::wait_ready(fd->get(), POLLIN, monotonic_now() + std::chrono::minutes(1));
    return io::receive_message(fd->get(), token).bytes == token.size();
  };
  EXPECT_TRUE(answer());
  agent.start(0, "sleep 1000");
  (void)agent.hear_until<Started>(0);
  EXPECT_FALSE(answer());
}

TEST(Agent, StartsARankInItsFolderBesideItsOwnEnvironment) {
  setenv("OF_THE_AGENT", "kept", 1);
  AgentProcess agent;
  unsetenv("OF_THE_AGENT");
  agent.tell(AgentProcess::subject(0),
             Start{.job = "test",
                   .agent = agent.name(),
                   .program = "/bin/sh",
                   .arguments = {"sh", "-c", "pwd; echo $OF_THE_AGENT $OF_THE_RANK"},
                   .directory = "/usr",
                   .environment = {{"OF_THE_RANK", "added"}},
                   .adds_environment = true});
  const auto heard = agent.hear_until<Ended>(0);
  EXPECT_EQ(output_of(heard, 0, io::Output::kOut), "/usr\nkept added\n");
  agent.tell(AgentProcess::subject(1), Start{.job = "test",
                                             .agent = agent.name(),
                                             .program = "/bin/true",
                                             .arguments = {"true"},
                                             .directory = "/no/such/folder"});
  EXPECT_THAT(std::get<Refused>(agent.hear_until<Refused>(1).back().body).why,
              HasSubstr("/no/such/folder"));
}

TEST(Agent, GivesARankItsInputAndItsEnd) {
  AgentProcess agent;
  const std::string text(size_t{1} << 20U, 'x');
  agent.tell(AgentProcess::subject(0), Start{.job = "test",
                                             .agent = agent.name(),
                                             .program = "/bin/sh",
                                             .arguments = {"sh", "-c", "sleep 0.1; wc -c"},
                                             .environment = {{"PATH", "/usr/bin:/bin"}},
                                             .input = StandardInput::kSent});
  for (int i = 0; i < 3; ++i) agent.tell(AgentProcess::subject(0), Input{.bytes = text});
  agent.tell(AgentProcess::subject(0), Input{.bytes = "end", .ends = true});
  const auto heard = agent.hear_until<Ended>(0);
  EXPECT_EQ(output_of(heard, 0, io::Output::kOut), std::to_string(3 * text.size() + 3) + "\n");
}

TEST(Agent, GivesCreditForInputAsItsRankReadsIt) {
  AgentProcess agent;
  agent.tell(AgentProcess::subject(0), Start{.job = "test",
                                             .agent = agent.name(),
                                             .program = "/bin/sh",
                                             .arguments = {"sh", "-c",
                                                           "trap 'exec wc -c' USR1; echo ready; "
                                                           "while :; do sleep 0.01; done"},
                                             .environment = {{"PATH", "/usr/bin:/bin"}},
                                             .input = StandardInput::kSent});
  (void)agent.hear_until<Output>(0);
  agent.tell(AgentProcess::subject(0), Input{.bytes = std::string(kInputCredit, 'x')});
  agent.tell(AgentProcess::subject(0), Input{.bytes = "", .ends = true});
  agent.tell(AgentProcess::all(), Look{});
  const uint64_t unread = credit_in(agent.hear_until<Alive>());
  EXPECT_LT(unread, kInputCredit) << "only the pipe took some";
  agent.tell(AgentProcess::subject(0), Signal{.number = SIGUSR1});
  const auto heard = agent.hear_until<Ended>(0);
  EXPECT_EQ(output_of(heard, 0, io::Output::kOut), std::to_string(kInputCredit) + "\n");
  EXPECT_EQ(unread + credit_in(heard), kInputCredit);
}

TEST(Agent, GivesItsRanksTheCallAndPassesOnWhatTheyReturn) {
  AgentProcess agent;
  const std::string piece(kCallPiece, 'x');
  for (int i = 0; i < 3; ++i) agent.tell(AgentProcess::all(), Call{.bytes = piece});
  agent.tell(AgentProcess::all(), Call{.bytes = "end"});
  // Each rank reads all of it, and returns it. Descriptors are "CALL,RESULT".
  const std::string script =
      "cat /proc/self/fd/${CORRO_CALL%,*} > /proc/self/fd/${CORRO_CALL#*,}; echo $?";
  agent.start(0, script);
  agent.start(1, script);
  agent.tell(AgentProcess::all(), Fence{.grace = std::chrono::seconds(60)});
  const auto heard = agent.hear_until<Fenced>();
  for (const int rank : {0, 1}) {
    EXPECT_EQ(output_of(heard, rank, io::Output::kResult), piece + piece + piece + "end");
    EXPECT_EQ(output_of(heard, rank, io::Output::kOut), "0\n");
  }
}

TEST(Agent, InputForARankThatReadsNoneIsForgotten) {
  AgentProcess agent;
  agent.tell(AgentProcess::subject(0), Start{.job = "test",
                                             .agent = agent.name(),
                                             .program = "/bin/sh",
                                             .arguments = {"sh", "-c", "exec <&-; echo closed"},
                                             .input = StandardInput::kSent});
  (void)agent.hear_until<Output>(0);
  const std::string text(size_t{1} << 20U, 'x');
  agent.tell(AgentProcess::subject(0), Input{.bytes = text});
  agent.tell(AgentProcess::all(), Fence{.grace = std::chrono::seconds(60)});
  const auto heard = agent.hear_until<Fenced>();
  EXPECT_FALSE(std::get<Fenced>(heard.back().body).left);
  EXPECT_EQ(credit_in(heard), text.size());
}

TEST(Agent, MayBeFencedBeforeItHasStartedAnything) {
  AgentProcess agent;
  agent.tell(AgentProcess::all(), Fence{});
  EXPECT_FALSE(std::get<Fenced>(agent.hear_until<Fenced>().back().body).left);
  EXPECT_EQ(agent.wait(), 0);
}

TEST(Agent, WithoutItsCommanderItEndsEverything) {
  AgentProcess agent;
  agent.start(0, "trap '' TERM INT HUP; setsid sleep 1000 & echo $!; sleep 1000");
  const auto heard = agent.hear_until<Output>(0);
  const pid_t grandchild = std::stoi(output_of(heard, 0, io::Output::kOut));
  agent.hang_up();
  EXPECT_EQ(agent.wait(), 0);
  EXPECT_NE(kill(grandchild, 0), 0);
}

TEST(RemoteShell, SrunIsToldTheHostByAnOption) {
  using testing::ElementsAre;
  EXPECT_THAT(words_for({"ssh", "-T"}, "n2", "exec x"), ElementsAre("ssh", "-T", "n2", "exec x"));
  const auto words = words_for({"/usr/bin/srun", "--qos=high"}, "n2", "exec x");
  EXPECT_THAT(words, testing::Contains("--nodelist=n2"));
  EXPECT_THAT(std::vector(words.end() - 3, words.end()), ElementsAre("sh", "-c", "exec x"));
}

}  // namespace
}  // namespace corro::agent
