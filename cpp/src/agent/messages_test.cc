#include "agent/messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/message_pipe.h"

#include <sys/socket.h>

#include <bit>

namespace corro::agent {
namespace {

using testing::HasSubstr;

constexpr size_t kFields = 49;  ///< Where they begin, after length, kind and subject.

Subject some_subject() {
  Subject about{.job = wire::digest_of("job-7"), .epoch = 3, .rank = 5, .incarnation = 2};
  about.member.fill(std::byte{0xAB});
  return about;
}

diagnosis::RankEnd some_end() {
  diagnosis::RankEnd end{.rank = 5, .pid = 4711, .ended = true, .stopped = true, .status = 9};
  end.out_of_memory = "out of memory: cgroup limit 512 MiB";
  end.crash = {"ValueError: x", "more", {"train.py", 12, "main", "f()"}, "the last line"};
  end.flight = obs::ProcessSnapshot{.rank = 5, .size = 8, .pid = 4712, .step = 17, .operations = 4};
  obs::OpSnapshot op;
  op.sequence = 4;
  op.op = {.op_id = 3, .lane = 1, .kind = OpKind::kBroadcast, .dtype = DType::kBF16, .count = 9};
  op.name = "layer1";
  op.phase = obs::Phase::kFailed;
  op.waiting_for = 2;
  op.code = Code::kUnavailable;
  op.queued_ns = 10, op.started_ns = 20, op.done_ns = 30;
  end.flight->recent.push_back(op);
  obs::OpSnapshot firing = op;
  firing.op.kind = {};
  firing.plan_lane = "rank5";
  end.flight->recent.push_back(firing);
  end.flight->times = {.steps = 16, .step_ns = 400, .wait_ns = 100};
  end.flight->progress = {.step = 17, .of = 90};
  end.flight->logged = {{.name = "loss", .value = 0.5, .step = 17}, {.name = "güte", .value = -1}};
  end.flight->steps.taken.add(std::chrono::milliseconds(3));
  end.flight->steps.taken.add(std::chrono::hours(1));
  end.flight->steps.waited.add(std::chrono::milliseconds(1));
  end.flight->links = {{.peer = 0, .sent = 9},
                       {.peer = obs::kOtherPeers, .sent = uint64_t{1} << 40U}};
  end.at = {"data.py", 3, "load", "next(it)"};
  end.paused = true;
  end.tables = {{.name = "words", .rows = 3, .pull_p99_ns = 1ULL << 40U}, {.name = "users"}};
  return end;
}

/// One of each kind, with a value in every field.
std::vector<MessageBody> one_of_each() {
  const Duration clock = std::chrono::seconds(5);
  const winsize size{.ws_row = 24, .ws_col = 80, .ws_xpixel = 1, .ws_ypixel = 2};
  Start start{.job = "job-7",
              .agent = "corro-1",
              .secret = {},
              .size = 8,
              .servers = 2,
              .program = "/bin/echo",
              .arguments = {"echo", "", "ü"},
              .directory = "/work",
              .environment = {{"A", "1"}, {"B", ""}},
              .adds_environment = true,
              .processors = {0, 3},
              .input = StandardInput::kSent,
              .out_terminal = size};
  start.secret.fill(std::byte{7});
  Surveyed survey{.machine = {},
                  .architecture = "x86_64",
                  .program = "python3.12",
                  .missing = "/x",
                  .free_port = 20001,
                  .here = {}};
  survey.machine.facts = {.gpus = 1, .cores = 2, .cpu_quota = 1.5, .memory_bytes = 1 << 30};
  survey.machine.processors = {{.id = 1, .core = 1, .package = 0, .node = 0}};
  survey.machine.host = "node7";
  survey.here = {.host = 3, .token = {}, .port = 20002, .addresses = {"10.0.0.3", "fd00::3"}};
  survey.interfaces = {"eth0", "eth1"};
  survey.host_id = "boot/net";
  return {
      Hello{.corro = "0.1", .host = "node7", .pid = 12, .slots = 2, .term = 3, .prepared = 4},
      Started{.pid = 13},
      Refused{.code = Code::kNotFound, .why = "no such file"},
      Joined{},
      Output{.stream = io::Output::kErr, .bytes = std::string("a\0b", 3)},
      OutputEnd{.stream = io::Output::kErr},
      Ended{some_end(), clock},
      Seen{some_end(), clock},
      Trouble{.text = "output of rank 3 is lost"},
      Fenced{.left = true},
      start,
      Signal{.number = 15, .ends = true},
      Ask{},
      Look{},
      Credit{.bytes = 1 << 20},
      Resize{.out = size, .err = std::nullopt},
      Fence{.grace = clock},
      Alive{},
      survey,
      Reached{.routes = {{.host = 3, .address = "10.0.0.3"}}},
      Record{.key = "job/peer/3", .value = {std::byte{1}, std::byte{0}}},
      Left{},
      Survey{.program = "/usr/bin/python", .directory = "/work", .script = "train.py"},
      Probe{.targets = {survey.here}},
      Input{.bytes = "yes\n", .ends = true},
      Grow{.host = 33, .name = "node33", .shell = {"ssh", "-T"}, .corro = "/opt/bin/corro"},
      Cut{.host = 33, .why = "Permission denied (publickey)."},
      Forward{.host = 33, .message = encode_message({.about = {}, .body = Look{}})},
      Sync{.root = "/home/me/code",
           .files = {{.path = ".", .kind = SyncedKind::kFolder, .permissions = 0700},
                     {.path = "a/run.sh", .permissions = 0755, .size = 7},
                     {.path = "b", .kind = SyncedKind::kLink, .link = "a"}},
           .last = true},
      Lacking{.files = 3, .bytes = 12345},
      Want{.file = 1, .offset = kMaxPartBytes},
      Part{.file = 1, .offset = kMaxPartBytes, .bytes = Bytes(3, std::byte{7})},
      Examine{.python = "/usr/bin/python", .key = {std::byte{9}}},
      Examined{.facts = {.kernel = "6.1",
                         .shared_bytes = 1 << 30,
                         .shared_free = 1 << 20,
                         .python = "3.12",
                         .torch = "2.8.0"}},
      ReadClock{},
      Clock{.since_1970 = clock},
      Measure{.target = survey.here, .key = {std::byte{9}}, .span = clock, .patience = clock},
      Measured{
          .host = 3,
          .speed = {.failure = "refused", .round_trip = clock, .bytes = 1 << 20, .span = clock}},
      Call{.bytes = std::string("f\0", 2)},
      Stacks{},
      Stack{.text = "Thread 1", .missing = "has ended"},
      Members{.hosts = {"node1", "node2"},
              .members = {{.rank = 0, .uuid = {std::byte{9}}, .incarnation = 1, .host = 1},
                          {.rank = 1, .uuid = {std::byte{8}}, .incarnation = 3, .host = 0}}},
      Release{},
      Enlist{.corro = "0.1",
             .program = "/corro/bin/corro",
             .command = {"/usr/bin/python", "train.py"},
             .directory = "/work"},
      Reach{.host = "mnist-worker-3"},
      Attend{.session = {std::byte{7}}},
      Session{.session = {std::byte{7}}},
      Ready{},
      Leave{},
      Propose{.status = 143, .saw_loss = true},
      Proceed{},
      Dismiss{.status = 3, .why = "the ranks have failed"},
      Reset{},
      HostLost{.host = "mnist-worker-3"},
      Meeting{.secret = {std::byte{7}}},
      Prepare{.why = "rank 1 was killed by SIGKILL"},
      ReadyForEpoch{.epoch = 2, .steps = 1'000, .lost = 3},
      Leaving{},
      Lead{.term = 3},
      Notice{{.kind = wire::NoticeKind::kPlan, .step = 200, .text = "two stages"}, clock},
      Trace{.steps = 2},
      Traced{
          .process = {{.step = 7, .operations = {{.op = some_end().flight->recent[0], .step = 6}}}},
          .clock = clock}};
}

BytesView without_length(const Bytes& encoded) {
  return BytesView(encoded).subspan(sizeof(uint32_t));
}

TEST(Messages, EachKindIsReadAsItWasWritten) {
  const auto bodies = one_of_each();
  ASSERT_EQ(bodies.size(), std::variant_size_v<MessageBody>);
  for (size_t kind = 0; kind < bodies.size(); ++kind) {
    ASSERT_EQ(bodies[kind].index(), kind);
    const Bytes encoded = encode_message({some_subject(), bodies[kind]});
    const auto read = decode_message(without_length(encoded));
    ASSERT_TRUE(read.ok()) << kind;
    EXPECT_EQ(read->about, some_subject());
    EXPECT_EQ(encode_message(*read), encoded) << kind;
  }
}

TEST(Messages, ARanksEndKeepsAllThatTheVerdictNeeds) {
  const Bytes encoded = encode_message({some_subject(), Ended{some_end(), {}}});
  const auto end = std::get<Ended>(decode_message(without_length(encoded))->body).end;
  EXPECT_EQ(end.pid, 4711);
  EXPECT_TRUE(end.ended && end.stopped && end.paused);
  EXPECT_EQ(end.crash.where.file, "train.py");
  EXPECT_EQ(end.at.code, "next(it)");
  EXPECT_EQ(end.flight->step, 17U);
  EXPECT_EQ(end.flight->recent[0].name, "layer1");
  EXPECT_EQ(end.flight->recent[0].op.dtype, DType::kBF16);
  EXPECT_FALSE(end.flight->recent.at(1).op.kind.has_value());
  EXPECT_EQ(end.flight->recent[1].plan_lane, "rank5");
  EXPECT_EQ(end.flight->recent[0].code, Code::kUnavailable);
}

TEST(Messages, WhatARankLogsIsOnTheWireAsDocumented) {
  Seen seen{.end = {}, .clock = {}};
  seen.end.flight = obs::ProcessSnapshot{.times = {.steps = 16, .step_ns = 400, .wait_ns = 100},
                                         .progress = {{.step = 17, .of = 90}},
                                         .logged = {{.name = "ab", .value = 0.5, .step = 17}}};
  seen.end.flight->steps.taken.add(std::chrono::milliseconds(3));
  seen.end.flight->links = {{.peer = 3, .sent = 4096}};
  const Bytes encoded = encode_message({some_subject(), seen});
  constexpr size_t kAfter = 4 * 4 + 1 + 4 + 8;  // Where its code was, paused, tables, the clock.
  constexpr size_t kLinks = 4 + (4 + 8);
  constexpr size_t kLogged = 3 * 8 + 1 + 2 * 8 + 4 + (4 + 2) + 2 * 8;
  constexpr size_t kHistograms = (8 + 1 + 1 + 8) + (8 + 1);
  ByteReader in(BytesView(encoded).last(kLogged + kHistograms + kLinks + kAfter));
  EXPECT_EQ(in.read<uint64_t>(), 16U);
  EXPECT_EQ(in.read<uint64_t>(), 400U);
  EXPECT_EQ(in.read<uint64_t>(), 100U);
  EXPECT_EQ(in.read<uint8_t>(), 1) << "it has told how long the training is";
  EXPECT_EQ(in.read<uint64_t>(), 17U);
  EXPECT_EQ(in.read<uint64_t>(), 90U);
  EXPECT_EQ(in.read<uint32_t>(), 1U) << "values";
  EXPECT_EQ(in.read_string(9), "ab");
  EXPECT_EQ(in.read<uint64_t>(), std::bit_cast<uint64_t>(0.5));
  EXPECT_EQ(in.read<uint64_t>(), 17U);
  EXPECT_EQ(in.read<uint64_t>(), 3'000'000U) << "of the steps";
  EXPECT_EQ(in.read<uint8_t>(), 1) << "bucket";
  EXPECT_EQ(in.read<uint8_t>(), bucket_of(std::chrono::milliseconds(3)));
  EXPECT_EQ(in.read<uint64_t>(), 1U);
  EXPECT_EQ(in.read<uint64_t>(), 0U) << "waited";
  EXPECT_EQ(in.read<uint8_t>(), 0);
  EXPECT_EQ(in.read<uint32_t>(), 1U) << "links";
  EXPECT_EQ(in.read<int32_t>(), 3);
  EXPECT_EQ(in.read<uint64_t>(), 4096U);
}

TEST(Messages, BucketsComeInOrderAndHaveSomething) {
  Seen seen{.end = {}, .clock = {}};
  seen.end.flight = obs::ProcessSnapshot{};
  seen.end.flight->steps.waited.add(std::chrono::milliseconds(1));
  seen.end.flight->steps.waited.add(std::chrono::milliseconds(2));
  const Bytes encoded = encode_message({some_subject(), seen});
  constexpr size_t kAfter = 4 + 4 * 4 + 1 + 4 + 8;  // No link, and what follows it.
  constexpr size_t kBucket = 1 + 8;
  const auto is_read = [&](size_t from_end, uint8_t byte) {
    Bytes changed = encoded;
    changed[changed.size() - kAfter - from_end] = std::byte{byte};
    return decode_message(without_length(changed)).ok();
  };
  EXPECT_TRUE(is_read(kBucket, 1));
  EXPECT_TRUE(is_read(kBucket, kDurationBuckets - 1));
  EXPECT_FALSE(is_read(kBucket, kDurationBuckets)) << "there is none";
  EXPECT_FALSE(is_read(kBucket, 0)) << "it was there";
  EXPECT_FALSE(is_read(kBucket - 1, 0)) << "it has nothing";
}

TEST(Messages, TablesAreOnTheWireAsDocumented) {
  Seen seen{.end = {}, .clock = {}};
  seen.end.tables = {{.name = "ab",
                      .rows = 1,
                      .bytes = 2,
                      .shards = 3,
                      .steps = 4,
                      .pulls = 5,
                      .pulled_rows = 6,
                      .pushes = 7,
                      .pushed_rows = 8,
                      .pull_p99_ns = 9}};
  const Bytes encoded = encode_message({some_subject(), seen});
  ByteReader in(BytesView(encoded).last(4 + (4 + 2) + 9 * 8 + 8));
  EXPECT_EQ(in.read<uint32_t>(), 1U);
  EXPECT_EQ(in.read_string(9), "ab");
  for (uint64_t number = 1; number <= 9; ++number) EXPECT_EQ(in.read<uint64_t>(), number);
  EXPECT_EQ(std::get<Seen>(decode_message(without_length(encoded))->body).end.tables,
            seen.end.tables);
}

TEST(Messages, TablesThatNoServerShowsAreRefused) {
  const auto is_read = [](std::vector<obs::TableCounts> tables) {
    Seen seen{.end = {}, .clock = {}};
    seen.end.tables = std::move(tables);
    return decode_message(without_length(encode_message({some_subject(), seen}))).ok();
  };
  EXPECT_TRUE(is_read(std::vector(obs::kMostShownTables, obs::TableCounts{.name = "t"})));
  EXPECT_FALSE(is_read(std::vector(obs::kMostShownTables + 1, obs::TableCounts{.name = "t"})));
  EXPECT_FALSE(is_read({{.name = ""}}));
}

TEST(Messages, MoreThanAProcessCanLogIsRefused) {
  const auto is_read = [](std::vector<obs::LoggedValue> logged) {
    Seen seen{.end = {}, .clock = {}};
    seen.end.flight = obs::ProcessSnapshot{.logged = std::move(logged)};
    return decode_message(without_length(encode_message({some_subject(), seen}))).ok();
  };
  EXPECT_TRUE(is_read(std::vector<obs::LoggedValue>(obs::kMostLogged, {.name = "loss"})));
  EXPECT_FALSE(is_read(std::vector<obs::LoggedValue>(obs::kMostLogged + 1, {.name = "loss"})));
  EXPECT_FALSE(is_read({{.name = ""}}));
  EXPECT_FALSE(is_read({{.name = std::string(obs::kLoggedNameBytes + 1, 'x')}}));
}

TEST(Messages, WhatIsCutShortOrTooLongIsRefused) {
  for (const MessageBody& body : one_of_each()) {
    Bytes encoded = encode_message({some_subject(), body});
    for (size_t size = sizeof(uint32_t); size < encoded.size(); ++size) {
      const BytesView part = BytesView(encoded).first(size).subspan(sizeof(uint32_t));
      EXPECT_FALSE(decode_message(part).ok()) << body.index() << " " << size;
    }
    encoded.push_back(std::byte{0});
    EXPECT_FALSE(decode_message(without_length(encoded)).ok()) << body.index();
  }
}

TEST(Messages, KindsAndValuesThatNobodyWritesAreRefused) {
  Bytes encoded = encode_message({some_subject(), Joined{}});
  for (const int kind : {0, static_cast<int>(std::variant_size_v<MessageBody>) + 1, 255}) {
    encoded[sizeof(uint32_t)] = static_cast<std::byte>(kind);
    const auto read = decode_message(without_length(encoded));
    EXPECT_THAT(read.status().message(), HasSubstr("do both run the same corro?")) << kind;
  }
  Bytes output = encode_message({some_subject(), OutputEnd{io::Output::kErr}});
  output.back() = std::byte{3};
  EXPECT_FALSE(decode_message(without_length(output)).ok());
  Bytes fenced = encode_message({some_subject(), Fenced{true}});
  fenced.back() = std::byte{2};
  EXPECT_FALSE(decode_message(without_length(fenced)).ok());
  Bytes notice = encode_message({some_subject(), Notice{}});
  notice[kFields] = static_cast<std::byte>(static_cast<int>(wire::kLastNoticeKind) + 1);
  EXPECT_FALSE(decode_message(without_length(notice)).ok());
}

TEST(Messages, MembersAreOnTheWireAsDocumented) {
  MemberUuid uuid;
  uuid.fill(std::byte{0xEE});
  const Members members{.hosts = {"ab"}, .members = {{4, uuid, 2, 1}}, .last = true};
  const Bytes encoded = encode_message({some_subject(), members});
  EXPECT_EQ(encoded[4], std::byte{42});
  ByteReader in(BytesView(encoded).subspan(kFields));
  EXPECT_EQ(in.read<uint32_t>(), 1U) << "hosts";
  EXPECT_EQ(in.read_string(9), "ab");
  EXPECT_EQ(in.read<uint32_t>(), 1U) << "members";
  EXPECT_EQ(in.read<int32_t>(), 4) << "rank";
  EXPECT_TRUE(std::ranges::equal(*in.read_bytes(uuid.size()), uuid));
  EXPECT_EQ(in.read<uint32_t>(), 2U) << "incarnation";
  EXPECT_EQ(in.read<int32_t>(), 1) << "host";
  EXPECT_EQ(in.read<uint8_t>(), 1) << "the last epoch";
  EXPECT_TRUE(in.done());
}

TEST(Messages, ALongListOfMembersThatIsNotThereCostsNothing) {
  ByteWriter lie;
  const Bytes encoded = encode_message({some_subject(), Members{}});
  const BytesView empty = without_length(encoded);
  lie.write_bytes(empty.first(empty.size() - sizeof(uint32_t) - 1));
  lie.write(uint32_t{1} << 20U);  // members, of which none comes
  lie.write(uint8_t{0});
  EXPECT_FALSE(decode_message(lie.bytes()).ok());
}

struct Pipes {
  MessagePipe left, right;
};

Pipes make_pipes() {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {MessagePipe(io::Fd(ends[0])), MessagePipe(io::Fd(ends[1]))};
}

/// Somebody who writes what it likes, and who reads it.
struct Stranger {
  io::Fd socket;
  MessagePipe pipe;
};

Stranger make_stranger() {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {io::Fd(ends[0]), MessagePipe(io::Fd(ends[1]))};
}

TEST(MessagePipe, CarriesMoreThanTheKernelKeeps) {
  auto [left, right] = make_pipes();
  constexpr int kMessages = 100;
  for (int i = 0; i < kMessages; ++i)
    left.send({some_subject(), Output{.bytes = std::string(kMaxOutputBytes, 'x')}});
  EXPECT_TRUE(left.unsent());
  int taken = 0;
  while (taken < kMessages) {
    left.flush();
    ASSERT_TRUE(right.read().ok());
    while (const auto message = right.take()) {
      EXPECT_EQ(std::get<Output>(message->body).bytes.size(), kMaxOutputBytes);
      ++taken;
    }
  }
  EXPECT_FALSE(left.unsent());
  EXPECT_FALSE(right.ended());
}

TEST(MessagePipe, AWriteToNobodyEndsIt) {
  signal(SIGPIPE, SIG_IGN);
  auto [left, right] = make_pipes();
  right.close();
  left.send({some_subject(), Joined{}});
  EXPECT_TRUE(left.ended());
  EXPECT_FALSE(left.unsent());
}

TEST(MessagePipe, WhatWasSentBeforeTheEndIsRead) {
  auto [left, right] = make_pipes();
  left.send({some_subject(), Joined{}});
  left.close();
  while (!right.ended()) ASSERT_TRUE(right.read().ok());
  EXPECT_TRUE(right.take().has_value());
  EXPECT_FALSE(right.take().has_value());
}

TEST(MessagePipe, WhatWasSentBeforeTheEndIsReadAfterAWriteToNobody) {
  signal(SIGPIPE, SIG_IGN);
  auto [left, right] = make_pipes();
  right.send({some_subject(), Fenced{.left = true}});
  right.close();
  left.send({some_subject(), Joined{}});
  EXPECT_TRUE(left.ended());
  EXPECT_TRUE(left.take().has_value());
}

TEST(MessagePipe, WhatAProfilePrintsBeforeThePreambleIsSkipped) {
  auto [agent, pipe] = make_stranger();
  pipe.expect_preamble();
  const Bytes message = encode_message({some_subject(), Joined{}});
  std::string text = "Welcome!\ncorro agent" + std::string(kPreamble);
  text.append(reinterpret_cast<const char*>(message.data()), message.size());
  for (const char byte : text) {
    ASSERT_EQ(write(agent.get(), &byte, 1), 1);
    ASSERT_TRUE(pipe.read().ok());
  }
  EXPECT_TRUE(pipe.take().has_value());
  EXPECT_FALSE(pipe.ended());
}

TEST(MessagePipe, WithoutAPreambleItEnds) {
  auto [stranger, pipe] = make_stranger();
  pipe.expect_preamble();
  const std::string text(size_t{70} << 10U, 'x');
  Status status;
  for (size_t at = 0; at < text.size();) {
    const ssize_t count =
        write(stranger.get(), text.data() + at, std::min<size_t>(1024, text.size() - at));
    ASSERT_GT(count, 0);
    at += static_cast<size_t>(count);
    status = pipe.read();
    if (!status.ok()) break;
  }
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_TRUE(pipe.ended());
}

TEST(MessagePipe, GarbageEndsIt) {
  for (const std::string& garbage : {std::string("\xFF\xFF\xFF\xFF", 4), std::string(64, '\2')}) {
    auto [stranger, pipe] = make_stranger();
    ASSERT_EQ(write(stranger.get(), garbage.data(), garbage.size()), std::ssize(garbage));
    Status status = pipe.read();
    // A length that fits is waited for.
    if (status.ok()) {
      const std::string more(size_t{40} << 20U, '\2');
      for (size_t at = 0; at < more.size() && status.ok() && !pipe.ended();) {
        const ssize_t count =
            send(stranger.get(), more.data() + at, size_t{64} << 10U, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count > 0) at += static_cast<size_t>(count);
        status = pipe.read();
      }
    }
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_TRUE(pipe.ended());
  }
}

}  // namespace
}  // namespace corro::agent
