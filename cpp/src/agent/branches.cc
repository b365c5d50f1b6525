#include "agent/branches.h"

#include <algorithm>

namespace corro::agent {

void Branches::hear(const Grow& grow) {
  auto process = AgentProcess::start_there(grow.shell, grow.name, grow.corro, mask_);
  if (!process.ok()) return say_(Cut{.host = grow.host, .why = process.status().message()});
  branches_.push_back(
      std::make_unique<Branch>(Branch{.host = grow.host, .process = std::move(*process)}));
  Branch& branch = *branches_.back();
  const Status watched = branch.process.watch(loop_, [this, &branch] { read(branch); });
  if (!watched.ok()) cut(branch, watched.message());
}

void Branches::hear(const Forward& forward) {
  const auto found = std::ranges::find_if(
      branches_, [&](const auto& branch) { return branch->host == forward.host && !branch->cut; });
  if (found == branches_.end() || forward.message.size() < sizeof(uint32_t)) return;
  const auto message = decode_message(BytesView(forward.message).subspan(sizeof(uint32_t)));
  if (message.ok()) (*found)->process.pipe().send(*message);
}

void Branches::read(Branch& branch) {
  if (branch.cut) return;
  MessagePipe& pipe = branch.process.pipe();
  pipe.flush();
  const Status status = pipe.read();
  while (const auto message = pipe.take()) {
    if (std::holds_alternative<Hello>(message->body)) branch.process.forget_greetings();
    say_(Forward{.host = branch.host, .message = encode_message(*message)});
  }
  if (pipe.ended()) cut(branch, status.ok() ? branch.process.why() : status.message());
}

/// A shell that still runs ends as its input does.
void Branches::cut(Branch& branch, const std::string& why) {
  branch.cut = true;
  branch.process.unwatch(loop_);
  say_(Cut{.host = branch.host, .why = why});
  branch.process.pipe().close();
}

void Branches::flush() {
  for (const auto& branch : branches_)
    if (!branch->cut) branch->process.pipe().flush_on(loop_);
}

void Branches::take_end(pid_t pid, int status) {
  for (const auto& branch : branches_)
    if (branch->process.pid() == pid && !branch->process.reaped())
      branch->process.set_ended(status);
}

std::set<pid_t> Branches::shells() const {
  std::set<pid_t> pids;
  for (const auto& branch : branches_)
    if (!branch->process.reaped()) pids.insert(branch->process.pid());
  return pids;
}

bool Branches::empty() const {
  return std::ranges::all_of(branches_, [](const auto& branch) { return branch->cut; });
}

}  // namespace corro::agent
