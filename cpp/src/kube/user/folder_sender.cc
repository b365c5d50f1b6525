#include "kube/user/folder_sender.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "agent/message_pipe.h"
#include "diagnosis/exit_status.h"
#include "kube/client/pod_exec.h"
#include "launch/sync_reader.h"

namespace corro::kube {
namespace {

constexpr const char* kProgram = "/bin/corro";  ///< In the head's image.

/// The command's standard streams, as messages go over them.
class ExecBytes final : public io::ByteStream {
 public:
  explicit ExecBytes(ExecStream& exec, const std::string& received)
      : exec_(exec), received_(received) {}

  Result<size_t> read(std::span<std::byte> into) override {
    const size_t count = std::min(into.size(), received_.size() - taken_);
    if (count == 0 && exec_.exit_code()) return Status(Code::kUnavailable, "the command has ended");
    std::memcpy(into.data(), received_.data() + taken_, count);
    taken_ += count;
    return count;
  }
  Result<size_t> write(BytesView bytes) override {
    return exec_.write_input({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  int in() const override { return exec_.fd(); }
  int out() const override { return exec_.fd(); }

 private:
  ExecStream& exec_;
  const std::string& received_;  ///< All that has come: some bytes for each file.
  size_t taken_ = 0;
};

/// One conversation with `corro receive`. Loop-confined.
class Sending {
 public:
  Sending(const launch::SyncTree& tree, const std::function<void(const FolderProgress&)>& show)
      : tree_(tree), show_(show) {}

  Status run(Client& client, const ObjectKey& head, const std::string& root,
             const std::stop_token& stop) {
    const ExecRequest request{
        .pod = head, .container = "head", .command = {kProgram, "receive"}, .has_input = true};
    const auto receive = [this](ExecOutput from, std::string_view bytes) {
      (from == ExecOutput::kOut ? output_ : errors_) += bytes;
      return Status();
    };
    CORRO_ASSIGN(const auto exec, ExecStream::open(client, request, receive, stop));
    agent::MessagePipe pipe(std::make_unique<ExecBytes>(*exec, output_));
    for (agent::Sync& part : tree_.announce()) {
      part.root = root;
      pipe.send({{}, std::move(part)});
    }
    while (!exec->exit_code()) {
      pipe.flush();
      CORRO_TRY(exec->turn(Time::never()));
      CORRO_TRY(pipe.read());
      while (const auto message = pipe.take()) CORRO_TRY(hear(message->body, pipe));
    }
    if (*exec->exit_code() == 0) return {};
    return failure(*exec->exit_code());
  }

 private:
  /// Whoever ends it by a signal, such as a node that lacks memory, has said nothing of the folder.
  Status failure(int exit_code) {
    if (exit_code >= diagnosis::kSignalExit)
      return {Code::kUnavailable, fmt::format("corro receive was ended by signal {}",
                                              exit_code - diagnosis::kSignalExit)};
    while (errors_.ends_with('\n')) errors_.pop_back();
    return {Code::kFailedPrecondition, errors_.empty() ? "corro receive has failed" : errors_};
  }

  Status hear(const agent::MessageBody& body, agent::MessagePipe& pipe) {
    if (const auto* lacking = std::get_if<agent::Lacking>(&body))
      show_({static_cast<uint32_t>(lacking->files), lacking->bytes});
    if (const auto* want = std::get_if<agent::Want>(&body)) {
      auto part = tree_.read_part(*want);
      // Another try reads the same file.
      if (!part.ok()) return {Code::kFailedPrecondition, part.status().message()};
      pipe.send({{}, std::move(*part)});
    }
    return {};
  }

  const launch::SyncTree& tree_;
  const std::function<void(const FolderProgress&)>& show_;
  std::string output_, errors_;
};

}  // namespace

Status send_folder(Client& client, const ObjectKey& head, const launch::SyncTree& tree,
                   const std::string& root, const std::function<void(const FolderProgress&)>& show,
                   const std::stop_token& stop) {
  return Sending(tree, show).run(client, head, root, stop);
}

Result<launch::SyncTree> read_folder(const std::string& folder, const std::stop_token& stop) {
  launch::SyncReader reader(folder, "");
  while (!reader.done()) {
    if (stop.stop_requested()) return Status(Code::kCancelled, "stopped");
    CORRO_TRY(reader.advance());
  }
  return reader.take();
}

}  // namespace corro::kube
