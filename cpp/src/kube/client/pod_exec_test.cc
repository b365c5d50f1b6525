#include "kube/client/pod_exec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

#include "io/loop.h"
#include "kube/client/client.h"
#include "kube/client/loopback_server.h"

namespace corro::kube {
namespace {

using namespace std::string_literals;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr std::string_view kSuccess = R"({"metadata":{},"status":"Success"})";
constexpr std::string_view kExitedWith3 =
    R"({"metadata":{},"status":"Failure","message":"command terminated with exit code 3",)"
    R"("reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}})";

/// A server's frame, whole or a part of a message.
std::string frame_of(int op, std::string_view payload, bool is_last = true) {
  std::string frame(1, static_cast<char>((is_last ? 0x80 : 0) | op));
  if (payload.size() < 126) {
    frame += static_cast<char>(payload.size());
  } else {
    frame += static_cast<char>(126);
    frame += static_cast<char>(payload.size() >> 8U);
    frame += static_cast<char>(payload.size());
  }
  return frame.append(payload);
}
std::string message_of(char channel, std::string_view bytes) {
  return frame_of(2, std::string(1, channel).append(bytes));
}

/// The server's side of a WebSocket.
class ServerSocket {
 public:
  explicit ServerSocket(LoopbackPeer& peer) : peer_(peer) {}
  /// The next frame: its op's number as a digit, and its payload; "" at the end.
  std::string next() {
    const std::string head = peer_.read(2);
    if (head.size() < 2) return "";
    EXPECT_TRUE((head[1] & 0x80) != 0) << "a client's frame is masked";
    size_t bytes = static_cast<uint8_t>(head[1]) & 0x7FU;
    const size_t more = bytes == 126 ? 2 : bytes == 127 ? 8 : 0;
    if (more > 0) bytes = 0;
    for (const char c : peer_.read(more)) bytes = bytes << 8U | static_cast<uint8_t>(c);
    const std::string mask = peer_.read(4);
    std::string payload = peer_.read(bytes);
    for (size_t i = 0; i < payload.size(); ++i) {
      payload[i] = static_cast<char>(payload[i] ^ mask[i % 4]);
    }
    return std::to_string(head[0] & 0x0F) + payload;
  }
  void send(const std::string& bytes) { peer_.write(bytes); }
  /// All bytes that come on channel 0, until its end.
  std::string read_input() {
    std::string input;
    while (true) {
      const std::string frame = next();
      if (frame.empty() || frame == "2\xFF\x00"s) return input;
      if (frame.starts_with("2\x00"s)) input += frame.substr(2);
    }
  }

 private:
  LoopbackPeer& peer_;
};

using Talk = std::function<void(ServerSocket&)>;

std::string field_of(const std::string& request, const std::string& name) {
  const size_t begin = request.find(name + ": ");
  if (begin == std::string::npos) return "";
  const size_t value = begin + name.size() + 2;
  return request.substr(value, request.find("\r\n", value) - value);
}

LoopbackReply switch_protocols(const LoopbackRequest& request, const Talk& talk,
                               const std::string& protocol = "v5.channel.k8s.io") {
  LoopbackReply reply;
  reply.text = fmt::format(
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
      "Sec-WebSocket-Accept: {}\r\nSec-WebSocket-Protocol: {}\r\n\r\n",
      websocket_accept(field_of(request.text, "Sec-WebSocket-Key")), protocol);
  reply.talk = [talk](LoopbackPeer& peer) {
    ServerSocket socket(peer);
    talk(socket);
  };
  return reply;
}

class PodExec : public testing::Test {
 protected:
  PodExec() { ::signal(SIGPIPE, SIG_IGN); }

  /// Starts the server, and a client for it.
  void serve(LoopbackServer::Reply reply) {
    server_.emplace(identity_, std::move(reply));
    KubeAccess access;
    const Status status =
        read_server_url("https://127.0.0.1:" + std::to_string(server_->port()), access.cluster);
    ASSERT_TRUE(status.ok()) << status.message();
    access.cluster.ca_pem = authority_.certificate;
    access.user.token = "secret";
    client_ = std::move(Client::connect(access, {})).value();
  }
  void serve_socket(const Talk& talk, const std::string& protocol = "v5.channel.k8s.io") {
    serve([this, talk, protocol](const LoopbackRequest& request) {
      *asked_.lock() = request.text;
      return switch_protocols(request, talk, protocol);
    });
  }
  Result<std::unique_ptr<ExecStream>> open(const ExecRequest& request) {
    return ExecStream::open(
        *client_, request,
        [this](ExecOutput from, std::string_view bytes) {
          (from == ExecOutput::kOut ? out_ : errors_) += bytes;
          return Status();
        },
        stop_);
  }
  Result<std::unique_ptr<ExecStream>> open() { return open(request_); }
  /// The end of a whole command.
  Status end() {
    const auto exec = open();
    return exec.ok() ? (*exec)->wait().status() : exec.status();
  }

  PemPair authority_ = make_certificate("authority");
  PemPair identity_ = make_certificate("server", "IP:127.0.0.1", &authority_);
  std::stop_source stopping_;
  std::stop_token stop_ = stopping_.get_token();
  Guarded<std::string> asked_;
  std::optional<LoopbackServer> server_;
  std::unique_ptr<Client> client_;
  ExecRequest request_{.pod = {"d", "a"}, .container = "c", .command = {"cat"}, .has_input = true};
  std::string out_;
  std::string errors_;
};

TEST_F(PodExec, GivesACommandItsInputAndTellsItsOutputAndItsEnd) {
  serve_socket([](ServerSocket& socket) {
    socket.send(message_of(1, ""));
    const std::string input = socket.read_input();
    socket.send(message_of(1, input.substr(0, 3)) + message_of(2, "error") +
                message_of(1, input.substr(3)) + message_of(3, kExitedWith3));
  });
  const auto exec = open({.pod = {"d", "a"},
                          .container = "c",
                          .command = {"sh", "-c", "cat && false", ""},
                          .has_input = true});
  ASSERT_TRUE(exec.ok()) << exec.status().message();
  EXPECT_EQ((*exec)->write_input("hello"), 5U);
  EXPECT_TRUE((*exec)->close_input().ok());
  const Result<int> code = (*exec)->wait();
  ASSERT_TRUE(code.ok()) << code.status().message();
  EXPECT_EQ(*code, 3);
  EXPECT_EQ((*exec)->exit_code(), 3);
  EXPECT_EQ(out_, "hello");
  EXPECT_EQ(errors_, "error");
  EXPECT_EQ((*exec)->write_input("late"), 0U);
  EXPECT_TRUE((*exec)->turn({}).ok());
  const std::string asked = *asked_.lock();
  EXPECT_THAT(asked, testing::StartsWith("GET /api/v1/namespaces/d/pods/a/exec?stdout=true&"
                                         "stderr=true&stdin=true&container=c&command=sh&"
                                         "command=-c&command=cat%20%26%26%20false&command= "));
  EXPECT_EQ(field_of(asked, "Sec-WebSocket-Protocol"), "v5.channel.k8s.io, v4.channel.k8s.io");
  EXPECT_EQ(field_of(asked, "Sec-WebSocket-Version"), "13");
  EXPECT_EQ(field_of(asked, "Authorization"), "Bearer secret");
  EXPECT_EQ(field_of(asked, "Accept"), "*/*");
}

TEST_F(PodExec, AcceptsKeysAsTheStandardSays) {
  // RFC 6455, section 1.3.
  EXPECT_EQ(websocket_accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
}

TEST_F(PodExec, AnswersPingsInsideOfAMessageAndSetsTheTerminalsSize) {
  Guarded<std::vector<std::string>> frames;
  serve_socket([&](ServerSocket& socket) {
    frames.lock()->push_back(socket.next());
    socket.send(frame_of(2, "\x01one", false) + frame_of(9, "ping") + frame_of(10, "unasked") +
                frame_of(0, "two", false) + frame_of(0, ""));
    frames.lock()->push_back(socket.next());
    socket.send(message_of(3, kSuccess));
  });
  const auto exec =
      open({.pod = {"d", "a"}, .container = "c", .command = {"sh"}, .has_terminal = true});
  ASSERT_TRUE(exec.ok()) << exec.status().message();
  (*exec)->resize(80, 24);
  const Result<int> code = (*exec)->wait();
  ASSERT_TRUE(code.ok()) << code.status().message();
  EXPECT_EQ(*code, 0);
  EXPECT_EQ(out_, "onetwo");
  EXPECT_THAT(*frames.lock(), testing::ElementsAre("2\x04{\"Width\":80,\"Height\":24}"s, "10ping"));
  EXPECT_THAT(*asked_.lock(), HasSubstr("/exec?stdout=true&tty=true&container=c&command=sh "));
}

TEST_F(PodExec, SaysThatAnOlderServerCannotEndAnInput) {
  serve_socket(
      [](ServerSocket& socket) {
        EXPECT_EQ(socket.next(), "2\x00hello"s);
        socket.send(message_of(3, kSuccess));
      },
      "v4.channel.k8s.io");
  const auto exec = open();
  ASSERT_TRUE(exec.ok()) << exec.status().message();
  EXPECT_EQ((*exec)->write_input("hello"), 5U);
  const Status closed = (*exec)->close_input();
  EXPECT_EQ(closed.code(), Code::kFailedPrecondition);
  EXPECT_THAT(closed.message(), HasSubstr("v4.channel.k8s.io"));
  EXPECT_TRUE((*exec)->wait().ok());
}

TEST_F(PodExec, SaysWhyTheServerRefuses) {
  struct Row {
    int status;
    std::string message;
    Code code;
    std::string words;
  };
  const std::vector<Row> table = {
      {403, R"(pods \"a\" is forbidden: User \"u\" cannot create resource \"pods/exec\")",
       Code::kPermissionDenied, "the right to create pods/exec is missing: 403 x: pods \"a\""},
      {403, R"(pods \"a\" is forbidden: User \"u\" cannot get resource \"pods/exec\")",
       Code::kPermissionDenied, "the right to get pods/exec is missing: 403 "},
      {403, "no", Code::kPermissionDenied, "the right to get and create pods/exec is missing: "},
      {404, R"(pods \"a\" not found)", Code::kNotFound, "404 x: pods \"a\" not found"},
      {400, "container c is not valid for pod a", Code::kInvalidArgument, "is not valid"},
      {500, R"(container not found (\"c\"))", Code::kNotFound, "container not found"},
      {500, "error dialing backend", Code::kInternal, "error dialing backend"},
  };
  Guarded<size_t> row;
  serve([&](const LoopbackRequest&) -> LoopbackReply {
    const Row& now = table[*row.lock()];
    return {http_reply(now.status, fmt::format(R"({{"reason":"x","message":"{}"}})", now.message))};
  });
  for (size_t i = 0; i < table.size(); ++i) {
    *row.lock() = i;
    const Status refused = open().status();
    EXPECT_EQ(refused.code(), table[i].code) << refused.message();
    EXPECT_THAT(refused.message(), testing::StartsWith("pods d/a: exec: "));
    EXPECT_THAT(refused.message(), HasSubstr(table[i].words));
  }
}

TEST_F(PodExec, AsksAgainAfterA401) {
  Guarded<int> count;
  serve([&](const LoopbackRequest& request) -> LoopbackReply {
    if ((*count.lock())++ == 0) return {http_reply(401, "{}")};
    return switch_protocols(request,
                            [](ServerSocket& socket) { socket.send(message_of(3, kSuccess)); });
  });
  EXPECT_TRUE(end().ok());
}

TEST_F(PodExec, RefusesAnAnswerThatIsNoWebSocketOfOurs) {
  Guarded<std::string> headers;
  serve([&](const LoopbackRequest&) -> LoopbackReply {
    return {"HTTP/1.1 101 x\r\nConnection: Upgrade\r\n" + *headers.lock() + "\r\n", false, true};
  });
  *headers.lock() = "Upgrade: SPDY/3.1\r\n";
  EXPECT_THAT(open().status().message(), HasSubstr("another protocol"));
  *headers.lock() = "Upgrade: websocket\r\nSec-WebSocket-Accept: x\r\n";
  const Status refused = open().status();
  EXPECT_EQ(refused.code(), Code::kDataLoss);
  EXPECT_THAT(refused.message(), HasSubstr("the key's answer is wrong"));
  serve_socket([](ServerSocket& /*socket*/) {}, "v1.channel.k8s.io");
  EXPECT_THAT(open().status().message(), HasSubstr("chose the protocol \"v1.channel.k8s.io\""));
}

TEST_F(PodExec, TellsACutAndACloseFromACommandsEnd) {
  serve_socket([](ServerSocket& socket) { socket.send(message_of(1, "output")); });
  const Status cut = end();
  EXPECT_EQ(cut.code(), Code::kUnavailable);
  EXPECT_THAT(cut.message(), HasSubstr("the server ended the connection"));
  EXPECT_EQ(out_, "output");
  Guarded<std::string> answer;
  serve_socket([&](ServerSocket& socket) {
    socket.send(frame_of(8, "\x03\xE9going\naway"));
    *answer.lock() = socket.next();
  });
  const Status closed = end();
  EXPECT_EQ(closed.code(), Code::kUnavailable);
  EXPECT_THAT(closed.message(), HasSubstr("the server closed the connection: 1001 going away"));
  server_.reset();
  EXPECT_EQ(*answer.lock(), "8\x03\xE9"s);
}

TEST_F(PodExec, RefusesWhatNoServerMaySend) {
  Guarded<std::string> bytes;
  serve_socket([&](ServerSocket& socket) {
    socket.send(*bytes.lock());
    (void)socket.next();
  });
  const std::vector<std::pair<std::string, Code>> table = {
      {"\x82\x7F\x00\x00\x00\x00\x00\x20\x00\x00"s, Code::kResourceExhausted},
      {frame_of(1, "\x01text"), Code::kDataLoss},
      {frame_of(2, ""), Code::kDataLoss},
      {frame_of(11, ""), Code::kDataLoss},
      {message_of(3,
                  R"-({"status":"Failure","code":500,"message":"container not found (\"c\")"})-"),
       Code::kNotFound},
      {message_of(3, R"({"status":"Failure","code":500,"message":"no such file"})"),
       Code::kInternal},
  };
  for (const auto& [sent, code] : table) {
    *bytes.lock() = sent;
    const Status status = end();
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_THAT(status.message(), testing::StartsWith("pods d/a: exec: "));
  }
}

TEST_F(PodExec, EndsWithItsDeadlineAndWithTheStop) {
  serve_socket([](ServerSocket& socket) { (void)socket.next(); });
  const auto exec = open();
  ASSERT_TRUE(exec.ok()) << exec.status().message();
  EXPECT_EQ((*exec)->wait(monotonic_now()).status().code(), Code::kDeadlineExceeded);
  Status stopped;
  std::thread waiting([&] { stopped = (*exec)->wait().status(); });
  stopping_.request_stop();
  waiting.join();
  EXPECT_EQ(stopped.code(), Code::kCancelled) << stopped.message();
  EXPECT_EQ((*exec)->turn({}).code(), Code::kCancelled);
}

TEST_F(PodExec, TakesNoMoreInputThanTheServerReads) {
  Guarded<bool> may_read;
  std::string all(size_t{24} << 20U, '\0');
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i * 7 + i / 256);
  serve_socket([&](ServerSocket& socket) {
    {
      auto held = may_read.lock();
      while (!*held) held.wait_for(std::chrono::milliseconds(10));
    }
    const bool is_same = socket.read_input() == all;
    socket.send(message_of(3, is_same ? kSuccess : kExitedWith3));
  });
  const auto exec = open();
  ASSERT_TRUE(exec.ok()) << exec.status().message();
  std::string_view rest = all;
  size_t idle = 0;  // Turns that took nothing: the connection is full, here and in the kernel.
  while (idle < 3) {
    const size_t taken = (*exec)->write_input(rest);
    rest.remove_prefix(taken);
    idle = taken == 0 ? idle + 1 : 0;
    ASSERT_TRUE((*exec)->turn(monotonic_now() + std::chrono::milliseconds(20)).ok());
  }
  EXPECT_FALSE(rest.empty());
  *may_read.lock() = true;
  may_read.notify_all();
  while (!rest.empty()) {
    rest.remove_prefix((*exec)->write_input(rest));
    ASSERT_TRUE((*exec)->turn(monotonic_now() + seconds(10)).ok());
  }
  EXPECT_TRUE((*exec)->close_input().ok());
  const Result<int> code = (*exec)->wait();
  ASSERT_TRUE(code.ok()) << code.status().message();
  EXPECT_EQ(*code, 0);
}

TEST_F(PodExec, RunsInALoopThatWatchesItsDescriptor) {
  const std::string part(30000, 'x');
  constexpr size_t kParts = 200;
  serve_socket([&](ServerSocket& socket) {
    const std::string input = socket.read_input();
    for (size_t i = 0; i < kParts; ++i) socket.send(message_of(1, part));
    socket.send(message_of(2, input) + message_of(3, kSuccess));
  });
  const auto exec = open();
  ASSERT_TRUE(exec.ok()) << exec.status().message();
  io::Loop loop = std::move(io::Loop::create()).value();
  Status status;
  ASSERT_TRUE(loop.watch((*exec)->fd(), EPOLLIN, [&] { status = (*exec)->turn({}); }).ok());
  const Time end = monotonic_now() + seconds(60);
  loop.turn(monotonic_now());
  EXPECT_EQ((*exec)->write_input("hello"), 5U);
  EXPECT_TRUE((*exec)->close_input().ok());
  while (!(*exec)->exit_code() && status.ok() && monotonic_now() < end) loop.turn(end);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ((*exec)->exit_code(), 0);
  EXPECT_EQ(out_.size(), kParts * part.size());
  EXPECT_EQ(errors_, "hello");
  loop.forget((*exec)->fd());
}

TEST_F(PodExec, EndsWithTheFailureOfTheReceiver) {
  serve_socket([](ServerSocket& socket) {
    socket.send(message_of(1, "output"));
    (void)socket.next();
  });
  const auto exec = ExecStream::open(
      *client_, request_,
      [](ExecOutput /*from*/, std::string_view /*bytes*/) {
        return Status(Code::kAborted, "enough");
      },
      stop_);
  ASSERT_TRUE(exec.ok()) << exec.status().message();
  EXPECT_EQ((*exec)->wait().status().message(), "enough");
}

TEST(ExitCodes, AreReadFromAStatusOfAnyShape) {
  const auto code_of_text = [](std::string_view text) {
    return exit_code_of(Json::parse(text), "name");
  };
  EXPECT_EQ(*code_of_text(kSuccess), 0);
  EXPECT_EQ(*code_of_text(kExitedWith3), 3);
  EXPECT_EQ(*code_of_text(R"({"details":{"causes":[{"reason":"a"},{"reason":"ExitCode","message":)"
                          R"("137"}]}})"),
            137);
  for (const std::string_view text :
       {R"({})", R"({"details":{"causes":{}}})",
        R"({"details":{"causes":[{"reason":"ExitCode","message":"x"}, 7]}})"}) {
    EXPECT_EQ(code_of_text(text).status().code(), Code::kInternal) << text;
  }
}

}  // namespace
}  // namespace corro::kube
