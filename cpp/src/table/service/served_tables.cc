// What a worker says is worker.h's matter; here are its sockets, the clock, and the wait for answers.
//
// Whoever has the lock moves the worker: a call, as long as it lasts; and between calls a thread, as
// long as something is under way. It is started by the first call that leaves something behind.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <ranges>
#include <string>
#include <thread>
#include <utility>

#include "base/guarded.h"
#include "base/own_thread.h"
#include "io/event.h"
#include "table/service/disk_snapshots.h"
#include "table/service/saved_tables.h"
#include "table/service/server_link.h"
#include "table/service/tables.h"
#include "table/service/worker.h"

namespace corro::table {
namespace {

/// Servers say themselves whom they have waited for in vain; this much later they are asked no more.
constexpr Duration kPushMargin = std::chrono::seconds(5);
constexpr Duration kLook = std::chrono::milliseconds(100);
/// Between two looks for a server that has come.
constexpr Duration kFindAgain = std::chrono::milliseconds(500);
constexpr Duration kFindMore = std::chrono::seconds(2);  ///< If none is lost.
/// A disk takes as long as it takes: a server that is lost ends the wait.
constexpr Duration kDiskPatience = std::chrono::hours(24 * 365);

class ServedTables final : public Tables, private Links {
 public:
  explicit ServedTables(const ServedOptions& options);
  ~ServedTables() override;
  ServedTables(const ServedTables&) = delete;
  ServedTables& operator=(const ServedTables&) = delete;

  Result<TableNumber> open(const TableSpec& spec, uint32_t replicas) override;
  Status pull(TableNumber table, std::span<const uint64_t> ids, std::span<float> values) override;
  Status prefetch(TableNumber table, std::span<const uint64_t> ids, size_t most) override;
  Status push(TableNumber table, std::span<const uint64_t> ids,
              std::span<const float> gradients) override;
  Status wait(TableNumber table) override;
  Status save(TableNumber table, const std::string& folder, const SavePolicy& policy) override;
  Result<std::optional<uint64_t>> wait_for_save(TableNumber table) override;
  Status save_into(TableNumber table, const CheckpointPlace& place) override;
  Result<std::optional<uint32_t>> parts_written(TableNumber table, uint64_t attempt) override;
  Result<uint64_t> load(TableNumber table, const std::string& folder, uint64_t step,
                        bool weights_only) override;
  Status adopt(TableNumber table) override;
  void adopt_steps(TableNumber table, uint64_t steps) override {
    const auto turn = turn_.lock();
    worker_.adopt_steps(table, steps);
  }
  Status set_lr(TableNumber table, float lr) override {
    const auto turn = turn_.lock();
    return worker_.set_lr(table, lr);
  }
  [[nodiscard]] uint64_t steps(TableNumber table) const override {
    const auto turn = turn_.lock();
    return worker_.steps(table);
  }
  [[nodiscard]] uint32_t copies(TableNumber table) const override {
    const auto turn = turn_.lock();
    return worker_.copies(table);
  }
  void abandon_in_child() override {
    for (const auto& link : links_)
      if (link) link->abandon_in_child();
  }

 private:
  /// What poll(2) waits for.
  struct Watched {
    std::vector<pollfd> descriptors;
    Time until;
  };
  /// Held to move the worker, also while it waits for sockets: nobody else can do anything then.
  struct Turn {
    bool ends = false;  ///< The thread is to end.
  };

  void add(uint32_t server, const std::string& address) override;
  Questions& questions(uint32_t server) override { return links_[server]->questions(); }
  void forget(uint32_t server) override { links_[server]->forget_questions(); }
  Result<std::optional<std::string>> find(uint32_t server) override;

  void add_link(uint32_t server, const io::SocketAddress& address);
  /// Until the call is over.
  Status finish_call(Duration patience);
  void wait_for_answers(Duration patience);
  [[nodiscard]] Status finish_save(TableNumber table);
  void finish_saves();
  void advance_links();
  [[nodiscard]] Watched watched(Time until) const;
  [[nodiscard]] bool has_questions() const;
  [[nodiscard]] std::string describe_silent() const;

  /// Leaves what is under way to the thread.
  Status leave();
  void run();

  const ServedOptions options_;
  SavedTables saved_;
  std::vector<std::unique_ptr<ServerLink>> links_;  ///< By server; null: nobody has told of it.
  TableWorker worker_;
  Time find_at_{};
  mutable Guarded<Turn> turn_;
  std::optional<io::EventFd> event_;  ///< Wakes the thread.
  std::thread thread_;
};

void poll_for(const std::vector<pollfd>& descriptors, Time until) {
  std::vector<pollfd> watched = descriptors;
  const Duration left = std::max(Duration::zero(), until - monotonic_now());
  constexpr Duration kMost = std::chrono::hours(1);
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(std::min(left, kMost)).count();
  (void)poll(watched.data(), watched.size(), static_cast<int>(ms));
}

std::vector<std::string> texts_of(const std::vector<io::SocketAddress>& addresses) {
  std::vector<std::string> texts;
  for (const io::SocketAddress& address : addresses) texts.push_back(address.to_string());
  return texts;
}

ServedTables::ServedTables(const ServedOptions& options)
    : options_(options),
      worker_({.rank = options.rank,
               .ranks = options.ranks,
               .servers = texts_of(options.servers),
               .patience = options.patience},
              *this) {
  for (uint32_t i = 0; i < options.servers.size(); ++i) add_link(i, options.servers[i]);
}

ServedTables::~ServedTables() {
  if (!thread_.joinable()) return;
  turn_.lock()->ends = true;
  event_->ring();
  thread_.join();
}

// -- calls ----------------------------------------------------------------------------------------

Result<TableNumber> ServedTables::open(const TableSpec& spec, uint32_t replicas) {
  const auto turn = turn_.lock();
  CORRO_ASSIGN(const TableNumber number, worker_.start_open(spec, replicas));
  CORRO_TRY(finish_call(options_.patience));
  return number;
}

Status ServedTables::pull(TableNumber table, std::span<const uint64_t> ids,
                          std::span<float> values) {
  const auto turn = turn_.lock();
  CORRO_TRY(worker_.start_pull(table, ids));
  CORRO_TRY(finish_call(options_.patience));
  worker_.copy_rows(values);
  return {};
}

Status ServedTables::prefetch(TableNumber table, std::span<const uint64_t> ids, size_t most) {
  const auto turn = turn_.lock();
  CORRO_TRY(worker_.prefetch(table, ids, most));
  advance_links();
  return leave();
}

Status ServedTables::push(TableNumber table, std::span<const uint64_t> ids,
                          std::span<const float> gradients) {
  const auto turn = turn_.lock();
  CORRO_TRY(worker_.start_push(table, ids, gradients));
  advance_links();
  return finish_call(options_.patience + kPushMargin);
}

Status ServedTables::wait(TableNumber table) {
  const auto turn = turn_.lock();
  CORRO_TRY(worker_.start_wait(table));
  return finish_call(options_.patience + kPushMargin);
}

Status ServedTables::finish_call(Duration patience) {
  wait_for_answers(patience);
  finish_saves();
  for (const std::string& note : worker_.take_notes()) fmt::print(stderr, "corro: {}\n", note);
  const Status left = leave();
  return worker_.result().ok() ? left : worker_.result();
}

void ServedTables::wait_for_answers(Duration patience) {
  const Time deadline = monotonic_now() + patience;
  for (worker_.proceed(); !worker_.over(); worker_.proceed()) {
    advance_links();
    if (deadline <= monotonic_now())
      worker_.stop(
          {Code::kDeadlineExceeded,
           fmt::format("{}: no answer from {}", worker_.describe_call(), describe_silent())});
    if (options_.interrupted && options_.interrupted())
      worker_.stop({Code::kCancelled, worker_.describe_call() + ": interrupted"});
    worker_.proceed();
    if (worker_.over()) break;
    const Watched links = watched(std::min(deadline, monotonic_now() + kLook));
    poll_for(links.descriptors, links.until);
  }
}

// -- snapshots ------------------------------------------------------------------------------------

Status ServedTables::save(TableNumber table, const std::string& folder, const SavePolicy& policy) {
  const auto turn = turn_.lock();
  if (options_.rank != 0) return {};
  CORRO_TRY(finish_save(table));
  const SavePolicy fitting = fitting_policy(worker_.spec(table), policy);
  CORRO_ASSIGN(const auto base, saved_.begin_alone(table, folder, worker_.pushed(table), fitting));
  CORRO_TRY(worker_.start_save_alone(table, {.folder = folder,
                                             .attempt = draw_attempt(),
                                             .counts = fitting.full_every > 1,
                                             .base = base}));
  return finish_call(options_.patience + kPushMargin);
}

Status ServedTables::save_into(TableNumber table, const CheckpointPlace& place) {
  const auto turn = turn_.lock();
  CORRO_TRY(finish_save(table));
  saved_.begin_part(table);
  CORRO_TRY(worker_.start_save(table, place));
  return finish_call(options_.patience + kPushMargin);
}

/// Between two calls nobody else may be there to hear that a part is written.
Result<std::optional<uint32_t>> ServedTables::parts_written(TableNumber table, uint64_t attempt) {
  const auto turn = turn_.lock();
  advance_links();
  worker_.proceed();
  finish_saves();
  return saved_.take_parts(table, attempt);
}

Result<std::optional<uint64_t>> ServedTables::wait_for_save(TableNumber table) {
  const auto turn = turn_.lock();
  CORRO_TRY(finish_save(table));
  return saved_.step_of(table);
}

Status ServedTables::finish_save(TableNumber table) {
  worker_.start_wait_for_save(table);
  return finish_call(kDiskPatience);
}

void ServedTables::finish_saves() {
  while (const auto written = worker_.take_written()) saved_.finish(*written);
}

Result<uint64_t> ServedTables::load(TableNumber table, const std::string& folder, uint64_t step,
                                    bool weights_only) {
  const auto turn = turn_.lock();
  CORRO_TRY(finish_save(table));
  CORRO_TRY(worker_.start_load(table, folder, step, weights_only));
  CORRO_TRY(finish_call(kDiskPatience));
  return worker_.loaded_steps(table);
}

Status ServedTables::adopt(TableNumber table) {
  const auto turn = turn_.lock();
  worker_.start_adopt(table);
  saved_.adopt(table);
  return finish_call(kDiskPatience);
}

// -- links ----------------------------------------------------------------------------------------

void ServedTables::add_link(uint32_t server, const io::SocketAddress& address) {
  const wire::HandshakeIdentity identity{.job = options_.job,
                                         .epoch = 0,
                                         .rank = static_cast<int32_t>(options_.rank),
                                         .size = static_cast<int32_t>(options_.ranks)};
  const auto on_news = [this, server](const Header& header, BytesView body) {
    worker_.hear(server, header, body);
  };
  if (links_.size() <= server) links_.resize(server + 1);
  links_[server] =
      std::make_unique<ServerLink>(ServerLink::Options{.identity = identity,
                                                       .secret = options_.secret,
                                                       .server = static_cast<int32_t>(server),
                                                       .address = address,
                                                       .lost_after = options_.lost_after,
                                                       .on_news = on_news});
}

/// An address that is none cannot be reached.
void ServedTables::add(uint32_t server, const std::string& address) {
  auto parsed = io::SocketAddress::parse(address);
  add_link(server, parsed.ok() ? *parsed : io::SocketAddress());
}

Result<std::optional<std::string>> ServedTables::find(uint32_t server) {
  const Time now = monotonic_now();
  if (!options_.find_server || now < find_at_) return std::optional<std::string>();
  const size_t used = static_cast<size_t>(
      std::ranges::count_if(std::views::iota(uint32_t{0}, static_cast<uint32_t>(links_.size())),
                            [this](uint32_t one) { return worker_.uses(one); }));
  find_at_ = now + (used < options_.servers.size() ? kFindAgain : kFindMore);
  CORRO_ASSIGN(const auto address, options_.find_server(server));
  if (address) find_at_ = now;  // Several may have come at once.
  return address ? std::optional(address->to_string()) : std::nullopt;
}

void ServedTables::advance_links() {
  const Time now = monotonic_now();
  for (uint32_t server = 0; server < links_.size(); ++server) {
    if (!worker_.uses(server)) continue;
    const Status status = links_[server]->advance(now);
    if (!status.ok()) worker_.lose(server, std::string(status.message()));
  }
}

ServedTables::Watched ServedTables::watched(Time until) const {
  Watched watched{.descriptors = {}, .until = until};
  for (uint32_t server = 0; server < links_.size(); ++server) {
    if (!worker_.uses(server)) continue;
    const ServerLink& link = *links_[server];
    watched.until = std::min(watched.until, link.wake());
    if (link.fd() >= 0) watched.descriptors.push_back({link.fd(), link.events(), 0});
  }
  return watched;
}

bool ServedTables::has_questions() const {
  for (uint32_t server = 0; server < links_.size(); ++server)
    if (worker_.uses(server) && links_[server]->has_questions()) return true;
  return false;
}

std::string ServedTables::describe_silent() const {
  for (uint32_t server = 0; server < links_.size(); ++server)
    if (worker_.uses(server) && links_[server]->has_questions()) return links_[server]->describe();
  return "a server";
}

// -- between calls --------------------------------------------------------------------------------

Status ServedTables::leave() {
  if (!has_questions()) return {};
  if (!event_) {
    CORRO_ASSIGN(event_, io::EventFd::create());
    thread_ = start_own_thread("corro-tables", [this] { run(); });
  }
  event_->ring();
  return {};
}

void ServedTables::run() {
  while (true) {
    Watched next{.descriptors = {}, .until = Time::never()};
    {
      auto turn = turn_.lock();
      if (turn->ends) return;
      if (has_questions()) {
        advance_links();
        worker_.proceed();
        next = watched(Time::never());
      }
    }
    // A call may change meanwhile what is to be watched: then it rings.
    next.descriptors.push_back({event_->fd(), POLLIN, 0});
    poll_for(next.descriptors, next.until);
    (void)event_->drain();
  }
}

}  // namespace

std::unique_ptr<Tables> served_tables(const ServedOptions& options) {
  return std::make_unique<ServedTables>(options);
}

}  // namespace corro::table
