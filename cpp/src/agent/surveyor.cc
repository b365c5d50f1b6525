#include "agent/surveyor.h"

#include <sys/epoll.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "agent/host_facts.h"
#include "agent/machine.h"
#include "base/variables.h"
#include "io/interfaces.h"
#include "io/process.h"

namespace corro::agent {
namespace {

constexpr Duration kProbePatience = std::chrono::seconds(3);

/// The name of the file to which all links lead: it tells one Python from another.
std::string real_name_of(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::canonical(path, ignored).filename().string();
}

/// What a rank would not find or not start, in words.
std::string missing_of(const Survey& survey) {
  const std::filesystem::path folder = survey.directory;
  std::error_code ignored;
  if (!folder.empty() && !std::filesystem::is_directory(folder, ignored))
    return survey.directory + " is not there";
  for (const std::string& file : {survey.program, survey.script}) {
    const std::filesystem::path path = folder / file;  // an absolute one stays itself
    if (!file.empty() && !std::filesystem::exists(path, ignored))
      return path.string() + " is not there";
  }
  const std::filesystem::path program = folder / survey.program;
  if (!survey.program.empty() && access(program.c_str(), X_OK) != 0)
    return program.string() + " cannot be executed there";
  return "";
}

}  // namespace

Surveyor::~Surveyor() {
  if (routes_) loop_.forget(routes_->poll_fd());
  if (speed_server_) loop_.forget(speed_server_->poll_fd());
  if (speed_test_) loop_.forget(speed_test_->poll_fd());
}

Status Surveyor::open_routes() {
  if (routes_ != nullptr && !closed_) return {};
  if (routes_ != nullptr) loop_.forget(routes_->poll_fd());
  CORRO_ASSIGN(routes_, Routes::create());
  closed_ = false;
  return loop_.watch(routes_->poll_fd(), EPOLLIN, [this] { routes_->poll(); });
}

void Surveyor::close_routes() {
  if (routes_ == nullptr) return;
  routes_->close();
  closed_ = true;
}

void Surveyor::hear(const Survey& survey) {
  if (const Status status = open_routes(); !status.ok())
    return say_(Refused{status.code(), status.message()});
  utsname system{};
  (void)uname(&system);
  std::vector<std::string> addresses, interfaces;
  for (io::OwnAddress& own : io::own_addresses()) {
    addresses.push_back(std::move(own.address));
    interfaces.push_back(std::move(own.interface));
  }
  say_(Surveyed{.machine = read_machine(read_variables()),
                .architecture = system.machine,
                .program = real_name_of(survey.program),
                .missing = missing_of(survey),
                .free_port = find_free_port(),
                .here = {.host = 0,
                         .token = routes_->token(),
                         .port = routes_->port(),
                         .addresses = std::move(addresses)},
                .interfaces = std::move(interfaces),
                .host_id = io::boot_host_id()});
}

void Surveyor::hear(const Probe& probe) {
  if (routes_ == nullptr) return;
  routes_->dial(probe.targets);
  probe_until_ = monotonic_now() + kProbePatience;
}

/// Says what the probe has reached once all dials are decided, or time is over.
void Surveyor::end_probe(Time now) {
  if (probe_until_ == Time::never() || (!routes_->idle() && now < probe_until_)) return;
  probe_until_ = Time::never();
  say_(Reached{.routes = routes_->take()});
}

Status Surveyor::open_speed_server(const SpeedKey& key) {
  if (speed_server_ != nullptr) return {};
  CORRO_TRY(open_routes());
  CORRO_ASSIGN(speed_server_, SpeedServer::create(key));
  routes_->on_caller([this](io::Fd caller) { speed_server_->add(std::move(caller)); });
  return loop_.watch(speed_server_->poll_fd(), EPOLLIN, [this] { speed_server_->poll(); });
}

void Surveyor::hear(const Examine& examine) {
  if (const Status status = open_speed_server(examine.key); !status.ok())
    return say_(Refused{status.code(), status.message()});
  say_(Examined{.facts = read_host_facts(examine.python)});
}

void Surveyor::hear(const ReadClock& /*read*/) {
  say_(Clock{.since_1970 = std::chrono::system_clock::now().time_since_epoch()});
}

void Surveyor::hear(const Measure& measure) {
  if (speed_test_) loop_.forget(speed_test_->poll_fd());
  auto test = SpeedTest::create({.target = measure.target,
                                 .key = measure.key,
                                 .span = measure.span,
                                 .patience = measure.patience});
  speed_test_ = test.ok() ? std::move(*test) : nullptr;
  Status status = test.status();
  if (status.ok())
    status = loop_.watch(speed_test_->poll_fd(), EPOLLIN, [this] { speed_test_->poll(); });
  if (status.ok()) return;
  speed_test_.reset();
  say_(Measured{.host = measure.target.host, .speed = {.failure = status.message()}});
}

/// Says what a speed test has found once it is over.
void Surveyor::end_speed_test(Time now) {
  if (speed_test_ && now >= speed_test_->deadline()) speed_test_->give_up();
  if (!speed_test_ || !speed_test_->done()) return;
  say_(Measured{.host = speed_test_->target().host, .speed = speed_test_->result()});
  loop_.forget(speed_test_->poll_fd());
  speed_test_.reset();
}

void Surveyor::tick(Time now) {
  end_probe(now);
  end_speed_test(now);
}

Time Surveyor::due() const {
  return std::min(probe_until_, speed_test_ ? speed_test_->deadline() : Time::never());
}

}  // namespace corro::agent
