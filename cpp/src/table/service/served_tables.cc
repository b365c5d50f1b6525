// A call asks all servers at once, each for the keys that it has, and is over when all have
// answered. What links do when a connection breaks is theirs (server_link.h).
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "table/service/server_link.h"
#include "table/service/split.h"
#include "table/service/tables.h"

namespace corro::table {
namespace {

/// Of one message's rows: small enough that servers take turns among ranks.
constexpr size_t kMessageBytes = size_t{4} << 20U;
/// Servers say themselves whom they have waited for in vain; this much later they are asked no more.
constexpr Duration kPushMargin = std::chrono::seconds(5);
constexpr Duration kLook = std::chrono::milliseconds(100);

class ServedTables final : public Tables {
 public:
  explicit ServedTables(const ServedOptions& options) : options_(options) {
    const wire::HandshakeIdentity identity{.job = options.job,
                                           .epoch = 0,
                                           .rank = static_cast<int32_t>(options.rank),
                                           .size = static_cast<int32_t>(options.ranks)};
    for (size_t i = 0; i < options.servers.size(); ++i)
      links_.push_back(
          std::make_unique<ServerLink>(ServerLink::Options{.identity = identity,
                                                           .secret = options.secret,
                                                           .server = static_cast<int32_t>(i),
                                                           .address = options.servers[i]}));
  }

  Result<TableNumber> open(const TableSpec& spec) override;
  Status pull(TableNumber table, std::span<const uint64_t> ids, std::span<float> values) override;
  Status push(TableNumber table, std::span<const uint64_t> ids,
              std::span<const float> gradients) override;
  Status set_lr(TableNumber table, float lr) override;
  [[nodiscard]] uint64_t steps(TableNumber table) const override { return tables_.at(table).steps; }
  void abandon_in_child() override {
    for (const auto& link : links_) link->abandon_in_child();
  }

 private:
  struct Opened {
    TableSpec spec;
    uint64_t steps = 0;
    Status broken;  ///< Why it is of no use any more.
  };

  ServerLink::Answer counted(ServerLink::Answer answer);
  void ask_rows(size_t server, TableNumber table, const ServerKeys& wanted,
                std::span<float> distinct_values);
  void tell_gradients(size_t server, TableNumber table, const ServerKeys& mine,
                      std::span<const float> sums);
  Status wait_for_answers(const std::string& what, Duration patience);
  void poll_links(Time until);
  [[nodiscard]] std::string describe_silent() const;

  const ServedOptions options_;
  std::vector<std::unique_ptr<ServerLink>> links_;  ///< By server.
  std::vector<Opened> tables_;                      ///< By number.
  size_t unanswered_ = 0;
  Status failure_;  ///< The first one of the call.
};

/// Has wait_for_answers() wait for it.
ServerLink::Answer ServedTables::counted(ServerLink::Answer answer) {
  ++unanswered_;
  return
      [this, answer = std::move(answer)](const Status& status, MessageKind kind, BytesView body) {
        --unanswered_;
        if (status.ok()) {
          answer(status, kind, body);
        } else if (failure_.ok()) {
          failure_ = status;
        }
      };
}

Result<TableNumber> ServedTables::open(const TableSpec& spec) {
  CORRO_TRY(check(spec));
  const auto found =
      std::ranges::find(tables_, spec.name, [](const Opened& opened) { return opened.spec.name; });
  if (found != tables_.end()) {
    CORRO_TRY(check_alike(spec, found->spec));
    return static_cast<TableNumber>(found - tables_.begin());
  }
  if (tables_.size() >= kMaxTables)
    return Status(Code::kResourceExhausted, fmt::format("table: {} are the most", kMaxTables));
  const auto number = static_cast<TableNumber>(tables_.size());
  const Bytes body = encode_open({spec, options_.rank, options_.ranks});
  std::vector<uint64_t> steps(links_.size());
  for (size_t server = 0; server < links_.size(); ++server) {
    const auto take = [&steps, server](const Status&, MessageKind, BytesView answer) {
      if (const auto opened = decode_opened(answer); opened.ok()) steps[server] = opened->steps;
    };
    links_[server]->open(number, body, counted(take));
  }
  CORRO_TRY(wait_for_answers(fmt::format("table {}: open", spec.name), options_.patience));
  if (std::ranges::adjacent_find(steps, std::not_equal_to()) != steps.end())
    return Status(Code::kFailedPrecondition,
                  fmt::format("table {}: servers have taken {} and {} steps", spec.name,
                              std::ranges::min(steps), std::ranges::max(steps)));
  tables_.push_back({.spec = spec, .steps = steps[0], .broken = {}});
  return number;
}

// -- pull -----------------------------------------------------------------------------------------

void ServedTables::ask_rows(size_t server, TableNumber table, const ServerKeys& wanted,
                            std::span<float> distinct_values) {
  const size_t dim = tables_[table].spec.dim;
  const size_t most = std::max<size_t>(1, kMessageBytes / (dim * sizeof(float)));
  for (size_t first = 0; first < wanted.keys.size(); first += most) {
    const size_t count = std::min(most, wanted.keys.size() - first);
    const auto rows = std::span(wanted.rows).subspan(first, count);
    const auto take = [this, rows, dim, distinct_values](const Status&, MessageKind kind,
                                                         BytesView body) {
      if (kind != MessageKind::kRows || body.size() != rows.size() * dim * sizeof(float)) {
        failure_ = {Code::kInternal, "table: an answer of another length"};
        return;
      }
      const auto* from = reinterpret_cast<const float*>(body.data());
      for (size_t i = 0; i < rows.size(); ++i)
        std::copy_n(from + i * dim, dim, distinct_values.data() + rows[i] * dim);
    };
    ServerLink& link = *links_[server];
    const uint32_t request = link.next_request();
    link.ask(request, encode_pull(table, request, std::span(wanted.keys).subspan(first, count)),
             counted(take));
  }
}

Status ServedTables::pull(TableNumber table, std::span<const uint64_t> ids,
                          std::span<float> values) {
  const Opened& opened = tables_.at(table);
  CORRO_TRY(opened.broken);
  const size_t dim = opened.spec.dim;
  const DistinctKeys keys = distinct(ids);
  const std::vector<ServerKeys> wanted = by_server(keys.keys, links_.size());
  std::vector<float> rows(keys.keys.size() * dim);
  for (size_t server = 0; server < links_.size(); ++server)
    ask_rows(server, table, wanted[server], rows);
  CORRO_TRY(wait_for_answers(fmt::format("table {}: pull", opened.spec.name), options_.patience));
  for (size_t i = 0; i < ids.size(); ++i)
    std::copy_n(rows.data() + keys.row_of[i] * dim, dim, values.data() + i * dim);
  return {};
}

// -- push -----------------------------------------------------------------------------------------

void ServedTables::tell_gradients(size_t server, TableNumber table, const ServerKeys& mine,
                                  std::span<const float> sums) {
  const Opened& opened = tables_[table];
  const size_t dim = opened.spec.dim;
  const size_t most = std::max<size_t>(1, kMessageBytes / (dim * sizeof(float)));
  const auto patience = std::chrono::ceil<std::chrono::milliseconds>(options_.patience).count();
  PushHead head{.step = opened.steps + 1,
                .first = 0,
                .rows = mine.keys.size(),
                .patience_ms = static_cast<uint32_t>(std::min<int64_t>(patience, UINT32_MAX)),
                .lr = opened.spec.optimizer.lr};
  do {  // A rank without gradients says so.
    const size_t count = std::min(most, mine.keys.size() - head.first);
    ServerLink& link = *links_[server];
    const uint32_t request = link.next_request();
    Bytes message = encode_push(table, request, head,
                                std::span(mine.keys).subspan(head.first, count), opened.spec.dim);
    const std::span<float> into = gradients_of(message, count);
    for (size_t i = 0; i < count; ++i)
      std::copy_n(sums.data() + mine.rows[head.first + i] * dim, dim, into.data() + i * dim);
    link.ask(request, std::move(message), counted([](const Status&, MessageKind, BytesView) {}));
    head.first += count;
  } while (head.first < mine.keys.size());
}

Status ServedTables::push(TableNumber table, std::span<const uint64_t> ids,
                          std::span<const float> gradients) {
  Opened& opened = tables_.at(table);
  CORRO_TRY(opened.broken);
  CORRO_TRY(check_finite(opened.spec, ids, gradients));
  const DistinctKeys keys = distinct(ids);
  const std::vector<float> sums = add_up(keys, gradients, opened.spec.dim);
  const std::vector<ServerKeys> mine = by_server(keys.keys, links_.size());
  for (size_t server = 0; server < links_.size(); ++server)
    tell_gradients(server, table, mine[server], sums);
  opened.broken =
      wait_for_answers(fmt::format("table {}: push {}", opened.spec.name, opened.steps + 1),
                       options_.patience + kPushMargin);
  CORRO_TRY(opened.broken);
  ++opened.steps;
  return {};
}

Status ServedTables::set_lr(TableNumber table, float lr) {
  TableSpec changed = tables_.at(table).spec;
  changed.optimizer.lr = lr;
  CORRO_TRY(check(changed));
  tables_[table].spec = changed;
  return {};
}

// -- waiting --------------------------------------------------------------------------------------

Status ServedTables::wait_for_answers(const std::string& what, Duration patience) {
  const Time deadline = monotonic_now() + patience;
  failure_ = {};
  while (true) {
    const Time now = monotonic_now();
    for (const auto& link : links_)
      if (const Status status = link->advance(now); !status.ok() && failure_.ok())
        failure_ = status.with_context(what);
    if (unanswered_ == 0 || !failure_.ok()) break;
    if (deadline <= now)
      failure_ = {Code::kDeadlineExceeded,
                  fmt::format("{}: no answer from {}", what, describe_silent())};
    if (options_.interrupted && options_.interrupted())
      failure_ = {Code::kCancelled, what + ": interrupted"};
    if (!failure_.ok()) break;
    poll_links(std::min(deadline, now + kLook));
  }
  // Answers that come later are to nobody.
  for (const auto& link : links_)
    if (unanswered_ > 0) link->forget_questions();
  unanswered_ = 0;
  return failure_;
}

void ServedTables::poll_links(Time until) {
  std::vector<pollfd> watched;
  for (const auto& link : links_) {
    until = std::min(until, link->wake());
    if (link->fd() >= 0) watched.push_back({link->fd(), link->events(), 0});
  }
  const Duration left = std::max(Duration::zero(), until - monotonic_now());
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  (void)poll(watched.data(), watched.size(), static_cast<int>(ms));
}

std::string ServedTables::describe_silent() const {
  for (const auto& link : links_)
    if (link->has_questions()) return link->describe();
  return "a server";
}

}  // namespace

std::unique_ptr<Tables> served_tables(const ServedOptions& options) {
  return std::make_unique<ServedTables>(options);
}

}  // namespace corro::table
