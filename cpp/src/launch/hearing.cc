#include "launch/hearing.h"

#include <fmt/format.h>

namespace corro::launch {

Status Hearing::listen() {
  return job_.agents.listen(
      job_.loop,
      {.hear = [this](AgentLink& link, const agent::Message& message) { hear(link, message); },
       .lose = [this](const AgentLink& link, const std::string& why) { lose(link, why); },
       .take_over = [this](const AgentLink& link, const AgentLink& by,
                           const std::string& why) { note_takeover(link, by, why); }});
}

void Hearing::hear(AgentLink& link, const agent::Message& message) {
  if (!leadership_.holds()) return;
  if (message.about.rank < 0) return hear_host(link, message);
  const Time now = monotonic_now();
  const auto* output = std::get_if<agent::Output>(&message.body);
  // What is of no rank that runs is dropped, but it had its credit.
  if (output != nullptr) link.uncredited += output->bytes.size();
  if (const auto server = job_.course.server_of(link.host, message.about))
    return hear_server(link, *server, message);
  const auto place = job_.course.place_of(link.host, message.about);
  const bool is_new = std::holds_alternative<agent::Started>(message.body);
  if (!place && !is_new) return;
  if (output != nullptr) return job_.output.take(*place, *output, now);
  if (const auto* end = std::get_if<agent::OutputEnd>(&message.body))
    return job_.output.take(*place, *end, now);
  if (const auto* credit = std::get_if<agent::Credit>(&message.body))
    return input_.take(credit->bytes);
  job_.course.hear(link.host, message, now);
  orders_.carry_out();
}

void Hearing::hear_server(const AgentLink& link, size_t server, const agent::Message& message) {
  if (const auto* output = std::get_if<agent::Output>(&message.body))
    return job_.output.take_server(server, *output);
  if (const auto* end = std::get_if<agent::OutputEnd>(&message.body))
    return job_.output.take_server(server, *end);
  job_.course.hear(link.host, message, monotonic_now());
  orders_.carry_out();
}

/// What an agent says of its host, or has for other hosts.
void Hearing::hear_host(AgentLink& link, const agent::Message& message) {
  if (const auto* hello = std::get_if<agent::Hello>(&message.body)) return greet(link, *hello);
  if (const auto* fenced = std::get_if<agent::Fenced>(&message.body))
    return on_fenced(link, *fenced);
  const bool leaves = std::holds_alternative<agent::Leaving>(message.body);
  if (leaves && job_.awaits(link)) return refuse_host(link, "it is about to go");
  link.leaves = link.leaves || leaves;
  // What a host has is known before anything is decided about it.
  const bool is_surveyed = std::holds_alternative<agent::Surveyed>(message.body);
  const bool is_alive = std::holds_alternative<agent::Alive>(message.body);
  if (job_.course.resuming() && is_alive && !link.survey) return;
  note_host(link, message);
  if (job_.course.resuming() && is_surveyed) return on_survey(link);
  job_.course.hear_host(link.host, message, monotonic_now());
  orders_.carry_out();
}

/// What is to be known of a host before the course decides about it.
void Hearing::note_host(AgentLink& link, const agent::Message& message) {
  if (const Status status = job_.meeting.hear(link, message); !status.ok())
    job_.awaits(link) ? refuse_host(link, status.message()) : job_.course.refuse(status.message());
  if (std::holds_alternative<agent::Lacking>(message.body)) opening_.wait_longer(monotonic_now());
  if (const auto* refused = std::get_if<agent::Refused>(&message.body))
    refuse_host(link, refused->why);
  if (const auto* trouble = std::get_if<agent::Trouble>(&message.body))
    job_.output.note(fmt::format("corro: {}\n", trouble->text));
}

/// Of a host whose ranks run, and have said all there is before.
void Hearing::on_survey(AgentLink& link) {
  if (const Status status = job_.meeting.take_survey(link); !status.ok())
    job_.output.note(fmt::format("corro: host {}: {}\n", link.name, status.message()));
  job_.course.hear_host(link.host, {{}, agent::Alive{}}, monotonic_now());
  orders_.carry_out();
}

void Hearing::greet(AgentLink& link, const agent::Hello& hello) {
  const bool fits = hello.version == agent::kMessagesVersion && hello.corro == job_.version;
  if (!job_.awaits(link))
    job_.plan.resumed ? job_.meeting.greet_again(link) : job_.meeting.greet(link);
  job_.course.hear_host(link.host, {{}, hello}, monotonic_now());
  if (job_.awaits(link) && fits) job_.hosts->greet(link);
  if (fits) return;
  const std::string why =
      fmt::format("has corro {}, this one {}; install the same on both", hello.corro, job_.version);
  job_.awaits(link) ? job_.hosts->refuse(link.host, why, monotonic_now())
                    : job_.course.refuse(fmt::format("host {} {}", link.name, why), link.host);
}

void Hearing::on_fenced(AgentLink& link, const agent::Fenced& fenced) {
  link.fenced = true;
  if (fenced.left)
    job_.output.note("corro: some processes of this job cannot be killed; the kernel holds them\n");
}

void Hearing::refuse_host(const AgentLink& link, const std::string& why) {
  job_.awaits(link) ? job_.hosts->refuse(link.host, why, monotonic_now())
                    : job_.course.refuse(fmt::format("host {}: {}", link.name, why), link.host);
}

void Hearing::lose(const AgentLink& link, const std::string& why) {
  if (!leadership_.holds()) return;
  lost_early_ = !job_.course.begun();
  if (job_.awaits(link)) return job_.hosts->refuse(link.host, why, monotonic_now());
  job_.course.lose_host(link.host, why, monotonic_now());
  orders_.carry_out();
}

void Hearing::note_takeover(const AgentLink& link, const AgentLink& by, const std::string& why) {
  if (!job_.plan.options.verbose) return;
  job_.output.note(fmt::format("corro: {} does not get to {} ({}); it is started from here\n",
                               by.name, link.name, why));
}

}  // namespace corro::launch
