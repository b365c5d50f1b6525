#include "kube/user/cluster_run.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "agent/messages.h"
#include "base/guarded.h"
#include "io/event.h"
#include "kube/client/websocket.h"

namespace corro::kube {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

struct Reply {
  int status = 200;
  std::string body = "{}";
  bool hangs = false;  ///< No answer before the stop.
};

std::string refusal_of(int code, const std::string& reason, const std::string& message) {
  const Json status = {
      {"kind", "Status"}, {"code", code}, {"reason", reason}, {"message", message}};
  return status.dump();
}

/// A message of a server's WebSocket.
std::string frame_of(char channel, std::string_view bytes) {
  const size_t count = bytes.size() + 1;
  std::string frame = "\x82";
  if (count >= 126) frame += "\x7E" + std::string(1, static_cast<char>(count >> 8U));
  frame += static_cast<char>(count);
  return frame + std::string(1, channel) + std::string(bytes);
}
/// What `exec` says at the end of a command.
std::string end_of(int exit_code) {
  Json status = {{"status", exit_code == 0 ? "Success" : "Failure"}};
  const Json cause = {{"reason", "ExitCode"}, {"message", std::to_string(exit_code)}};
  if (exit_code != 0) status["details"]["causes"] = Json::array({cause});
  return frame_of(3, status.dump());
}
/// `corro receive` wants a file of the folder.
std::string want(uint32_t file) {
  const Bytes bytes = agent::encode_message({{}, agent::Want{.file = file, .offset = 0}});
  return frame_of(1, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

/// A connection on which all that the server says is there; what comes is dropped.
class PlayedStream final : public io::ByteStream {
 public:
  explicit PlayedStream(std::string bytes) : bytes_(std::move(bytes)) { bell_.ring(); }
  Result<size_t> read(std::span<std::byte> into) override {
    const size_t count = std::min(into.size(), bytes_.size());
    std::memcpy(into.data(), bytes_.data(), count);
    bytes_.erase(0, count);
    return count;
  }
  Result<size_t> write(BytesView bytes) override { return bytes.size(); }
  int in() const override { return bell_.fd(); }
  int out() const override { return bell_.fd(); }

 private:
  std::string bytes_;
  io::EventFd bell_ = io::EventFd::create().value();
};

/// An API server with one job and its pods, as the test says they are. Thread-safe.
class PlayedServer final : public Transport {
 public:
  struct State {
    Json job;  ///< null: there is none.
    std::map<std::string, Json> pods = {};
    struct Event {
      int64_t version;
      bool is_job;
      std::string line;
    };
    std::vector<Event> events = {};
    int64_t version = 1;
    int64_t oldest = 0;  ///< Watches of before have to list again.
    std::vector<std::string> asked = {};
    std::function<Reply(State&, const Request&)> create, remove, log, exec;
  };
  explicit PlayedServer(Guarded<State>& state) : state_(state) {}

  Exchanged exchange(const Request& request, const ExchangeLimits& /*limits*/,
                     const std::stop_token& stop, const Receive& receive) override {
    if (request.target.find("watch=true") != std::string::npos)
      return watch(request, stop, receive);
    const Reply reply = answer(request);
    if (reply.hangs) {
      while (!stop.stop_requested()) state_.lock().wait_for(milliseconds(10));
      return {{Code::kCancelled, "stopped"}, true};
    }
    return {receive_all(reply, receive), true};
  }
  Exchanged upgrade(const Request& request, const ExchangeLimits& /*limits*/,
                    const std::stop_token& /*stop*/, const Receive& receive,
                    std::unique_ptr<io::ByteStream>& stream) override {
    const Reply reply = answer(request);
    if (reply.status != kSwitchingProtocols) return {receive_all(reply, receive), true};
    const std::string accept = websocket_accept(request.headers.at("Sec-WebSocket-Key"));
    stream = std::make_unique<PlayedStream>(reply.body);
    return {receive({reply.status,
                     {{"upgrade", "websocket"},
                      {"connection", "Upgrade"},
                      {"sec-websocket-accept", accept},
                      {"sec-websocket-protocol", "v5.channel.k8s.io"}}},
                    ""),
            true};
  }

 private:
  static Status receive_all(const Reply& reply, const Receive& receive) {
    CORRO_TRY(receive({reply.status, {}}, ""));
    return receive({reply.status, {}}, reply.body);
  }

  Reply answer(const Request& request) {
    auto state = state_.lock();
    state->asked.push_back(request.method + " " + request.target);
    state_.notify_all();
    const auto has = [&request](const char* words) {
      return request.target.find(words) != std::string::npos;
    };
    const auto from = [&](const auto& play) { return play ? play(*state, request) : Reply(); };
    if (request.method == "POST") return from(state->create);
    if (request.method == "DELETE") return from(state->remove);
    if (has("/log?")) return from(state->log);
    if (has("/exec?")) return from(state->exec);
    if (has("/pods/")) {
      const auto pod = state->pods.find(request.target.substr(request.target.rfind('/') + 1));
      if (pod == state->pods.end()) return {404, refusal_of(404, "NotFound", "pod is not there")};
      return {200, pod->second.dump()};
    }
    if (has("/corrojobs/")) {
      return state->job.is_null() ? Reply{404, refusal_of(404, "NotFound", "job is not there")}
                                  : Reply{200, state->job.dump()};
    }
    Json items = Json::array();
    if (has("/pods")) {
      for (const auto& [name, pod] : state->pods) items.push_back(pod);
    } else if (!state->job.is_null()) {
      items.push_back(state->job);
    }
    const Json list = {{"metadata", {{"resourceVersion", std::to_string(state->version)}}},
                       {"items", items}};
    return {200, list.dump()};
  }

  Exchanged watch(const Request& request, const std::stop_token& stop, const Receive& receive) {
    const std::string words = "resourceVersion=";
    int64_t seen = std::stoll(request.target.substr(request.target.find(words) + words.size()));
    const bool is_job = request.target.find("/corrojobs") != std::string::npos;
    while (!stop.stop_requested()) {
      std::string lines;
      bool is_over = false;
      {
        auto state = state_.lock();
        is_over = seen < state->oldest;
        for (const State::Event& event : state->events)
          if (event.version > seen && event.is_job == is_job) lines += event.line + "\n";
        seen = std::max(seen, state->version);
        if (lines.empty() && !is_over) state.wait_for(milliseconds(10));
      }
      if (is_over) {
        const std::string refusal = refusal_of(410, "Expired", "too old");
        return {receive({410, {}}, refusal), true};
      }
      if (const Status status = receive({200, {}}, lines); !status.ok()) return {status, true};
    }
    return {{Code::kCancelled, "stopped"}, true};
  }

  Guarded<State>& state_;
};

class ClusterRunTest : public testing::Test {
 protected:
  using State = PlayedServer::State;

  ClusterRunTest() {
    sigemptyset(&signals_);
    for (const int number : {SIGINT, SIGTERM}) sigaddset(&signals_, number);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ / "train.py") << "pass\n";
    auto state = state_.lock();
    state->create = [](State& server, const Request& request) {
      server.job = Json::parse(request.body);
      server.job["metadata"]["uid"] = "u-1";
      return Reply{201, server.job.dump()};
    };
    state->log = [](State&, const Request&) { return Reply{200, ""}; };
    state->exec = [](State&, const Request&) {
      return Reply{404, refusal_of(404, "NotFound", "pod is not there")};
    };
  }
  ~ClusterRunTest() override {
    std::filesystem::remove_all(folder_);
    pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
  }

  void start() {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    running_ = std::thread([this] { code_ = run_on_cluster(client_, run_, manner_, signals_); });
  }
  int end() {
    running_.join();
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return code_;
  }
  /// Blocks until the server was asked for `words` so often.
  void wait_for(const std::string& words, int count = 1) {
    auto state = state_.lock();
    while (count_in(*state, words) < count) state.wait_for(milliseconds(10));
  }
  int count(const std::string& words) { return count_in(*state_.lock(), words); }
  static int count_in(const State& state, const std::string& words) {
    return static_cast<int>(std::ranges::count_if(state.asked, [&words](const std::string& line) {
      return line.find(words) != std::string::npos;
    }));
  }

  static void tell(State& state, const char* type, const Json& object, bool is_job) {
    Json told = object;
    told["metadata"]["resourceVersion"] = std::to_string(++state.version);
    const Json event = {{"type", type}, {"object", told}};
    state.events.push_back({state.version, is_job, event.dump()});
  }
  void put_head(const std::string& name, int generation, const char* container_state) {
    auto state = state_.lock();
    Json pod = Json::parse(R"({"kind": "Pod", "apiVersion": "v1",
        "spec": {"containers": [{"name": "head"}]}, "status": {"phase": "Running"}})");
    pod["metadata"] = {{"name", name},
                       {"labels",
                        {{"training.corro.dev/role", "head"},
                         {"training.corro.dev/generation", std::to_string(generation)}}}};
    pod["status"]["containerStatuses"] =
        Json::array({{{"name", "head"}, {"state", Json::parse(container_state)}}});
    tell(*state, state->pods.contains(name) ? "MODIFIED" : "ADDED", pod, false);
    state->pods[name] = pod;
    state_.notify_all();
  }
  void drop_pod(const std::string& name) {
    auto state = state_.lock();
    tell(*state, "DELETED", state->pods.at(name), false);
    state->pods.erase(name);
  }
  void drop_job() {
    auto state = state_.lock();
    tell(*state, "DELETED", state->job, true);
    state->job = nullptr;
  }
  void let_job_succeed() {
    auto state = state_.lock();
    state->job["status"]["conditions"] = Json::array({{{"type", "Succeeded"}, {"status", "True"}}});
    tell(*state, "MODIFIED", state->job, true);
  }
  /// Watches are cut, and what has happened meanwhile is forgotten.
  static void cut_watches(State& state) { state.oldest = ++state.version; }

  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("corro-cluster-run-" + std::to_string(getpid()));
  Guarded<State> state_;
  Client client_{std::make_unique<PlayedServer>(state_), {}, real_surroundings()};
  ClusterRun run_{.name = "a", .space = "ml", .image = "i", .command = {"train"}, .env = {}};
  RunManner manner_;
  sigset_t signals_;
  std::thread running_;
  int code_ = -1;
  std::string out_, err_;
};

constexpr const char* kRunning = R"({"running": {}})";
constexpr const char* kTerminated = R"({"terminated": {"exitCode": 0}})";

TEST_F(ClusterRunTest, AJobWhoseLogCannotBeReadGoesOn) {
  state_.lock()->log = [calls = 0](State&, const Request&) mutable {
    if (++calls <= 2) return Reply{403, refusal_of(403, "Forbidden", "no pods/log for you")};
    return Reply{200, "2026-11-24T20:15:04Z loss 1\n"};
  };
  start();
  wait_for("POST ");
  put_head("a-head", 0, kRunning);
  wait_for("/log?", 3);
  put_head("a-head", 0, kTerminated);
  let_job_succeed();
  EXPECT_EQ(end(), 0) << err_;
  EXPECT_EQ(count("DELETE "), 0);
  EXPECT_EQ(out_, "loss 1\n");
  const size_t said = err_.find("no pods/log for you");
  EXPECT_NE(said, std::string::npos) << err_;
  EXPECT_EQ(err_.find("no pods/log for you", said + 1), std::string::npos) << err_;
}

TEST_F(ClusterRunTest, AFolderThatCannotComeEndsTheJobBeforeItsRanksRun) {
  run_.sync = folder_;
  state_.lock()->exec = [](State&, const Request&) {
    return Reply{403, refusal_of(403, "Forbidden", "no pods/exec for you")};
  };
  start();
  wait_for("POST ");
  put_head("a-head", 0, kRunning);
  EXPECT_EQ(end(), 1);
  EXPECT_EQ(count("DELETE "), 1);
  EXPECT_THAT(err_, HasSubstr("corro: --sync " + folder_.string() + ": pods ml/a-head: exec: "));
}

TEST_F(ClusterRunTest, AFolderThatDoesNotComeAgainEndsNothing) {
  run_.sync = folder_;
  state_.lock()->exec = [](State&, const Request& request) {
    const bool is_first = request.target.find("/a-head/") != std::string::npos;
    if (is_first) return Reply{kSwitchingProtocols, end_of(0)};
    return Reply{403, refusal_of(403, "Forbidden", "no pods/exec for you")};
  };
  start();
  wait_for("POST ");
  put_head("a-head", 0, kRunning);
  wait_for("/pods/a-head/log?");
  drop_pod("a-head");
  put_head("a-head-g1", 1, kRunning);
  wait_for("/pods/a-head-g1/log?");
  put_head("a-head-g1", 1, kTerminated);
  let_job_succeed();
  EXPECT_EQ(end(), 0);
  EXPECT_EQ(count("DELETE "), 0);
  EXPECT_THAT(err_, HasSubstr("no pods/exec for you; head a-head-g1 waits for it"));
}

TEST_F(ClusterRunTest, AKilledReceptionIsTriedAgain) {
  run_.sync = folder_;
  state_.lock()->exec = [calls = 0](State&, const Request&) mutable {
    return Reply{kSwitchingProtocols, end_of(calls++ == 0 ? 137 : 0)};
  };
  start();
  wait_for("POST ");
  put_head("a-head", 0, kRunning);
  wait_for("/pods/a-head/log?");
  put_head("a-head", 0, kTerminated);
  let_job_succeed();
  EXPECT_EQ(end(), 0);
  EXPECT_THAT(err_, HasSubstr("corro receive was ended by signal 9; tries again"));
}

TEST_F(ClusterRunTest, AFileThatIsNotThereAnyMoreEndsTheJobBeforeItsRanksRun) {
  run_.sync = folder_;
  state_.lock()->exec = [this](State&, const Request&) {
    std::filesystem::remove(folder_ / "train.py");
    return Reply{kSwitchingProtocols, want(1)};
  };
  start();
  wait_for("POST ");
  put_head("a-head", 0, kRunning);
  EXPECT_EQ(end(), 1);
  EXPECT_EQ(count("DELETE "), 1);
  EXPECT_THAT(err_, HasSubstr((folder_ / "train.py").string() + ": No such file"));
}

TEST_F(ClusterRunTest, TheHeadThatReplacesALostOneGetsTheFolder) {
  run_.sync = folder_;
  start();
  wait_for("POST ");
  put_head("a-head", 0, kRunning);
  wait_for("/a-head/exec", 2);
  put_head("a-head-g1", 1, kRunning);  // The lost one may stay for long.
  wait_for("/a-head-g1/exec");
  drop_pod("a-head");
  drop_pod("a-head-g1");
  put_head("a-head-g2", 2, kRunning);
  wait_for("/a-head-g2/exec");
  const int before = count("/a-head/exec") + count("/a-head-g1/exec");
  wait_for("/a-head-g2/exec", 3);
  EXPECT_EQ(count("/a-head/exec") + count("/a-head-g1/exec"), before);
  drop_job();
  EXPECT_EQ(end(), 1);
  EXPECT_EQ(count("DELETE "), 0);
  EXPECT_THAT(err_, HasSubstr("job a: was deleted"));
}

TEST_F(ClusterRunTest, ADeletionWhileTheWatchIsCutIsNoticed) {
  start();
  wait_for("GET /apis/training.corro.dev/v1/namespaces/ml/corrojobs");
  {
    auto state = state_.lock();
    state->job = nullptr;
    cut_watches(*state);
  }
  EXPECT_EQ(end(), 1);
  EXPECT_THAT(err_, HasSubstr("job a: was deleted"));
}

TEST_F(ClusterRunTest, AJobThatIsNotThereNeedsNoDeletion) {
  state_.lock()->remove = [](State&, const Request&) {
    return Reply{404, refusal_of(404, "NotFound", "job is not there")};
  };
  start();
  wait_for("GET /apis/training.corro.dev/v1/namespaces/ml/corrojobs");
  kill(getpid(), SIGINT);
  EXPECT_EQ(end(), 130);
}

TEST_F(ClusterRunTest, ASignalEndsItBeforeTheJobIsMade) {
  state_.lock()->create = [](State&, const Request&) { return Reply{.hangs = true}; };
  start();
  wait_for("POST ");
  kill(getpid(), SIGTERM);
  EXPECT_EQ(end(), 143);
  EXPECT_EQ(count("DELETE "), 0);
}

TEST_F(ClusterRunTest, ASignalDeletesTheJobWhoseAnswerDidNotCome) {
  state_.lock()->create = [](State& server, const Request& request) {
    server.job = Json::parse(request.body);
    server.job["metadata"]["uid"] = "u-1";
    return Reply{.hangs = true};
  };
  start();
  wait_for("POST ");
  kill(getpid(), SIGINT);
  EXPECT_EQ(end(), 130);
  EXPECT_EQ(count("DELETE "), 1);
}

TEST_F(ClusterRunTest, ASignalLeavesAJobOfThatNameThatSomebodyElseMade) {
  state_.lock()->create = [](State& server, const Request&) {
    server.job = Json::parse(R"({"metadata": {"name": "a", "uid": "u-0"}})");
    return Reply{.hangs = true};
  };
  start();
  wait_for("POST ");
  kill(getpid(), SIGINT);
  EXPECT_EQ(end(), 130);
  EXPECT_EQ(count("DELETE "), 0);
}

TEST_F(ClusterRunTest, ASecondSignalDoesNotWaitForTheDeletion) {
  state_.lock()->remove = [](State&, const Request&) { return Reply{.hangs = true}; };
  start();
  wait_for("GET /apis/training.corro.dev/v1/namespaces/ml/corrojobs");
  kill(getpid(), SIGINT);
  wait_for("DELETE ");
  kill(getpid(), SIGINT);
  EXPECT_EQ(end(), 130);
}

}  // namespace
}  // namespace corro::kube
