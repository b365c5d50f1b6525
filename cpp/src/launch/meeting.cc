#include "launch/meeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "launch/network.h"

namespace corro::launch {
namespace {

constexpr double kMebi = 1 << 20;

/// Whether the host `from` has reached `address` of the host `to`.
bool reaches(const AgentLink& from, size_t to, const std::string& address) {
  return std::ranges::any_of(*from.routes, [&](const agent::Route& route) {
    return static_cast<size_t>(route.host) == to && route.address == address;
  });
}

}  // namespace

void Meeting::greet(const AgentLink& link) {
  if (!done()) welcome(link);
}

void Meeting::welcome(const AgentLink& link) {
  lacking_.erase(link.host);  // Of an earlier agent.
  synced_.erase(link.host);
  if (link.own || (!tree_ && !reader_)) return survey(link);
  if (tree_) return announce(link);
  want_tree_.insert(link.host);
}

void Meeting::greet_again(const AgentLink& link) { survey(link); }

void Meeting::announce(const AgentLink& link) {
  for (agent::Sync& part : tree_->announce()) agents_.tell(link.host, std::move(part));
}

void Meeting::survey(const AgentLink& link) {
  agents_.tell(link.host, agent::Survey{.program = plan_.command.program,
                                        .directory = plan_.directory,
                                        .script = plan_.command.script});
}

Status Meeting::hear(AgentLink& link, const agent::Message& message) {
  if (const auto* survey = std::get_if<agent::Surveyed>(&message.body)) link.survey = *survey;
  if (const auto* reached = std::get_if<agent::Reached>(&message.body))
    link.routes = reached->routes;
  if (const auto* lacking = std::get_if<agent::Lacking>(&message.body)) {
    lacking_[link.host] = *lacking;
    if (lacking->files == 0 && synced_.insert(link.host).second) survey(link);
  }
  if (const auto* want = std::get_if<agent::Want>(&message.body); want != nullptr && tree_) {
    CORRO_ASSIGN(agent::Part part, tree_->read_part(*want));
    agents_.tell(link.host, std::move(part));
  }
  return {};
}

std::string Meeting::describe_sync() const {
  uint64_t files = 0;
  uint64_t bytes = 0;
  for (const auto& [host, lacking] : lacking_) files += lacking.files, bytes += lacking.bytes;
  if (files == 0) return "";
  return "corro: " + describe_lacking(plan_.options.sync, files, bytes);
}

std::string Meeting::describe_comparing() const {
  if (reader_) {
    return fmt::format("corro: --sync {}: {} files, {:.1f} MiB read", plan_.options.sync,
                       reader_->files(), static_cast<double>(reader_->bytes()) / kMebi);
  }
  const auto hosts = std::ranges::count_if(agents_.links(), [this](const AgentLink& link) {
    return !link.own && link.greeted && !lacking_.contains(link.host);
  });
  if (!tree_ || done() || hosts == 0) return "";
  return fmt::format("corro: --sync {}: {} host{} compare{} files", plan_.options.sync, hosts,
                     hosts == 1 ? "" : "s", hosts == 1 ? "s" : "");
}

bool Meeting::has_answered(const AgentLink& link) const {
  return state_ == State::kSurveying ? link.survey.has_value() : link.routes.has_value();
}

const AgentLink* Meeting::silent() const {
  const auto& links = agents_.links();
  const auto found = std::ranges::find_if(links, [this](const AgentLink& link) {
    const bool syncs =
        (tree_ || reader_) && !link.own && link.greeted && !synced_.contains(link.host);
    return !has_answered(link) && !syncs;
  });
  return done() || found == links.end() ? nullptr : &*found;
}

Status Meeting::advance() {
  if (reader_) {
    CORRO_TRY(reader_->advance());
    if (!reader_->done()) return {};
    tree_.emplace(reader_->take());
    reader_.reset();
    for (const AgentLink& link : agents_.links())
      if (want_tree_.contains(link.host)) announce(link);
  }
  const auto answered = [this](const AgentLink& link) { return has_answered(link); };
  if (done() || !std::ranges::all_of(agents_.links(), answered)) return {};
  if (state_ == State::kProbing) {
    CORRO_ASSIGN(const auto addresses, choose_addresses(agents_.links()));
    for (size_t host = 0; host < addresses.size(); ++host)
      plan_.job.hosts[host].address = addresses[host];
    state_ = State::kDone;
    return {};
  }
  for (AgentLink& link : agents_.links()) {
    unfit_ = link.host;
    CORRO_TRY(take_survey(link).with_context("host " + link.name));
  }
  unfit_.reset();
  // Another shell, or a scheduler, may well start several agents on one machine.
  const bool may_share = !plan_.options.rsh.empty() || !plan_.hosts_source.empty();
  CORRO_TRY(tell_hosts_apart(agents_.links(), may_share, plan_.job.hosts));
  plan_.job.master_port = agents_[0].survey->free_port;
  state_ = agents_.size() == 1 ? State::kDone : State::kProbing;
  // Others may come, and need an address that nobody can try yet.
  const auto& own = agents_[0].survey->here.addresses;
  if (done() && !own.empty()) plan_.job.hosts[0].address = own[0];
  if (!done()) probe();
  return {};
}

Status Meeting::take_survey(AgentLink& link) {
  agent::Surveyed& survey = *link.survey;
  if (agents_.size() > 1 || plan_.hosts_come()) {
    const auto interfaces = find_interface_rule([this](const char* name) {
      const auto found = plan_.base.find(name);
      return found == plan_.base.end() ? std::nullopt : std::optional(found->second);
    });
    CORRO_TRY(narrow_addresses(survey, plan_.options.network, interfaces));
  }
  if (!survey.missing.empty()) {
    const bool program = survey.missing.starts_with(plan_.command.program + " ");
    return {Code::kNotFound,
            survey.missing + (program ? "; install the same environment at the same place"
                                      : "; it has to be at the same place as here, or --sync "
                                        "brings it")};
  }
  const auto first = std::ranges::find_if(
      agents_.links(), [](const AgentLink& one) { return one.survey.has_value(); });
  CORRO_TRY(check_alike(survey, *first->survey, first->name));
  return settle_host(plan_, link.host, survey.machine);
}

void Meeting::probe() {
  for (const AgentLink& from : agents_.links()) {
    agent::Probe probe;
    for (const AgentLink& to : agents_.links()) {
      if (to.host == from.host) continue;
      probe.targets.push_back(to.survey->here);
      probe.targets.back().host = static_cast<int32_t>(to.host);
    }
    agents_.tell(from.host, std::move(probe));
  }
}

Status narrow_addresses(agent::Surveyed& survey, const std::string& network,
                        const std::optional<InterfaceRule>& interfaces) {
  const auto none = [](const auto& has) {
    return has.empty() ? std::string("none") : fmt::format("{}", fmt::join(has, ", "));
  };
  std::vector<std::string>& addresses = survey.here.addresses;
  if (!network.empty()) {
    CORRO_ASSIGN(const Network range, Network::parse(network));
    const std::string all = none(addresses);
    std::erase_if(addresses, [&](const std::string& address) { return !range.has(address); });
    if (!addresses.empty()) return {};
    return {Code::kNotFound, fmt::format("has no address in {}; it has {}", network, all)};
  }
  if (!interfaces) return {};
  std::vector<std::string> kept;
  for (size_t i = 0; i < std::min(addresses.size(), survey.interfaces.size()); ++i) {
    if (interfaces->admits(survey.interfaces[i])) kept.push_back(addresses[i]);
  }
  addresses = std::move(kept);
  if (!addresses.empty()) return {};
  const std::set<std::string> names(survey.interfaces.begin(), survey.interfaces.end());
  return {Code::kNotFound,
          fmt::format("has no interface by {} with an address for others; it has {}",
                      interfaces->text(), none(names))};
}

Status check_alike(const agent::Surveyed& survey, const agent::Surveyed& first,
                   const std::string& name) {
  if (survey.architecture != first.architecture) {
    return {Code::kFailedPrecondition,
            fmt::format("it is {}, {} is {}; the ranks of a job need the same", survey.architecture,
                        name, first.architecture)};
  }
  if (survey.program == first.program) return {};
  return {Code::kFailedPrecondition,
          fmt::format("the program is {} there, {} on {}; install the same environment",
                      survey.program, first.program, name)};
}

Status tell_hosts_apart(const std::vector<AgentLink>& links, bool may_share,
                        std::vector<JobHost>& hosts) {
  std::map<std::string, size_t> first;
  for (const AgentLink& link : links) {
    const auto [same, is_new] = first.emplace(link.survey->host_id, link.host);
    if (is_new) continue;
    const std::string& name = hosts[same->second].name;
    if (!may_share) {
      return {Code::kFailedPrecondition,
              fmt::format("hosts {} and {} are one machine; name it once: -H {}:{}", name,
                          link.name, name, hosts[same->second].ranks + hosts[link.host].ranks)};
    }
    for (const size_t host : {same->second, link.host})
      hosts[host].id = fmt::format("{}/{}", link.survey->host_id, host);
  }
  return {};
}

std::string common_address(const AgentLink& to, const std::vector<const AgentLink*>& others) {
  const std::vector<std::string>& own = to.survey->here.addresses;
  const auto common = std::ranges::find_if(own, [&](const std::string& address) {
    return std::ranges::all_of(
        others, [&](const AgentLink* from) { return reaches(*from, to.host, address); });
  });
  return common == own.end() ? "" : *common;
}

Result<std::vector<std::string>> choose_addresses(const std::vector<AgentLink>& links) {
  std::vector<std::string> chosen;
  for (const AgentLink& to : links) {
    const std::vector<std::string>& own = to.survey->here.addresses;
    std::vector<const AgentLink*> others;
    for (const AgentLink& from : links)
      if (from.host != to.host) others.push_back(&from);
    if (const std::string common = common_address(to, others); !common.empty()) {
      chosen.push_back(common);
      continue;
    }
    const auto cut_off = std::ranges::find_if(links, [&](const AgentLink& from) {
      return from.host != to.host && std::ranges::none_of(own, [&](const std::string& address) {
               return reaches(from, to.host, address);
             });
    });
    const std::string whom = cut_off == links.end() ? "no address leads to it from all other hosts"
                                                    : cut_off->name + " does not reach it";
    return Status(
        Code::kUnavailable,
        fmt::format("host {}: {}; it has {}: is a firewall between them?", to.name, whom,
                    own.empty() ? "no address" : fmt::format("{}", fmt::join(own, ", "))));
  }
  return chosen;
}

}  // namespace corro::launch
