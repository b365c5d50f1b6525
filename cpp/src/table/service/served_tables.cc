// A call asks all servers at once, each for the keys that it has, and is over when all have
// answered. What links do when a connection breaks is theirs (server_link.h).
//
// Each row is on several servers if its table says so. A rank pushes to all of them, so that they
// take the same steps, and pulls from the first one. When a server is lost, here or as another rank
// says, whoever is in a call makes it once more with those that are left: a server that has answered
// before answers alike. So an acknowledged push is on all servers that have the row, and is lost
// with the last of them alone; nothing has to be promoted, or copied, before training goes on.
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
  explicit ServedTables(const ServedOptions& options);

  Result<TableNumber> open(const TableSpec& spec, uint32_t replicas) override;
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
    Open asked;
    Placement placement;
    uint64_t steps = 0;
    Status broken = {};  ///< Why it is of no use any more.
    [[nodiscard]] const TableSpec& spec() const { return asked.spec; }
    [[nodiscard]] std::string describe(std::string_view call) const {
      return fmt::format("table {}: {}", asked.spec.name, call);
    }
  };

  /// Has `ask` ask servers until all that are left have answered.
  template <typename Ask>
  Status call(const Opened& opened, const std::string& what, Duration patience, const Ask& ask);
  ServerLink::Answer counted(ServerLink::Answer answer);
  void ask_rows(size_t server, TableNumber table, const ServerKeys& wanted,
                std::span<float> distinct_values);
  void tell_gradients(size_t server, TableNumber table, const ServerKeys& mine,
                      std::span<const float> sums);
  /// False: a server was lost, and not all have answered.
  Result<bool> wait_for_answers(const std::string& what, Duration patience);
  bool advance_links();
  void poll_links(Time until);
  void give_up(size_t server, const std::string& why);
  [[nodiscard]] Status check_rows(const Opened& opened) const;
  [[nodiscard]] std::string describe_silent() const;

  const ServedOptions options_;
  std::vector<std::unique_ptr<ServerLink>> links_;  ///< By server.
  std::vector<bool> lost_;                          ///< By server.
  std::vector<std::string> why_;                    ///< By server: why it is lost.
  bool lost_one_ = false;                           ///< In this call.
  std::vector<Opened> tables_;                      ///< By number.
  size_t unanswered_ = 0;
  Status failure_;  ///< The first one of the call.
};

ServedTables::ServedTables(const ServedOptions& options)
    : options_(options), lost_(options.servers.size()), why_(options.servers.size()) {
  const wire::HandshakeIdentity identity{.job = options.job,
                                         .epoch = 0,
                                         .rank = static_cast<int32_t>(options.rank),
                                         .size = static_cast<int32_t>(options.ranks)};
  for (size_t i = 0; i < options.servers.size(); ++i) {
    const auto on_lost = [this, i](uint32_t server) {
      if (server < lost_.size())
        give_up(server, fmt::format("{} is lost: another rank says so to server {}",
                                    links_[server]->describe(), i));
    };
    links_.push_back(
        std::make_unique<ServerLink>(ServerLink::Options{.identity = identity,
                                                         .secret = options.secret,
                                                         .server = static_cast<int32_t>(i),
                                                         .address = options.servers[i],
                                                         .lost_after = options.lost_after,
                                                         .on_lost = on_lost}));
  }
}

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

template <typename Ask>
Status ServedTables::call(const Opened& opened, const std::string& what, Duration patience,
                          const Ask& ask) {
  while (true) {
    CORRO_TRY(check_rows(opened).with_context(what));
    ask();
    CORRO_ASSIGN(const bool answered, wait_for_answers(what, patience));
    if (answered) return {};
  }
}

Result<TableNumber> ServedTables::open(const TableSpec& spec, uint32_t replicas) {
  CORRO_TRY(check(spec));
  if (replicas > kMaxReplicas)
    return Status(Code::kInvalidArgument, fmt::format("table {}: replicas is {}; {} are the most",
                                                      spec.name, replicas, kMaxReplicas));
  const auto found = std::ranges::find(tables_, spec.name,
                                       [](const Opened& opened) { return opened.spec().name; });
  if (found != tables_.end()) {
    CORRO_TRY(check_alike(spec, found->spec()));
    if (replicas != found->asked.replicas)
      return Status(Code::kInvalidArgument,
                    fmt::format("table {}: replicas is {} here and {} there", spec.name, replicas,
                                found->asked.replicas));
    return static_cast<TableNumber>(found - tables_.begin());
  }
  if (tables_.size() >= kMaxTables)
    return Status(Code::kResourceExhausted, fmt::format("table: {} are the most", kMaxTables));
  const auto number = static_cast<TableNumber>(tables_.size());
  Opened opened{.asked = {spec, options_.rank, options_.ranks, replicas},
                .placement = Placement(links_.size(), size_t{1} + replicas)};
  const Bytes body = encode_open(opened.asked);
  std::map<size_t, uint64_t> steps;
  const auto ask = [&] {
    for (size_t server = 0; server < links_.size(); ++server) {
      const auto take = [&steps, server](const Status&, MessageKind, BytesView answer) {
        if (const auto read = decode_opened(answer); read.ok()) steps[server] = read->steps;
      };
      if (!lost_[server]) links_[server]->open(number, body, counted(take));
    }
  };
  CORRO_TRY(call(opened, opened.describe("open"), options_.patience, ask));
  for (const auto& [server, taken] : steps) {
    opened.steps = std::max(opened.steps, taken);
    if (lost_[server] || taken == steps.begin()->second) continue;
    return Status(Code::kFailedPrecondition,
                  fmt::format("table {}: servers have taken {} and {} steps", spec.name,
                              steps.begin()->second, taken));
  }
  tables_.push_back(std::move(opened));
  return number;
}

// -- pull -----------------------------------------------------------------------------------------

void ServedTables::ask_rows(size_t server, TableNumber table, const ServerKeys& wanted,
                            std::span<float> distinct_values) {
  const size_t dim = tables_[table].spec().dim;
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
  const size_t dim = opened.spec().dim;
  const DistinctKeys keys = distinct(ids);
  std::vector<float> rows(keys.keys.size() * dim);
  std::vector<ServerKeys> wanted;
  const auto ask = [&] {
    wanted = for_pull(keys.keys, opened.placement, lost_);
    for (size_t server = 0; server < links_.size(); ++server)
      ask_rows(server, table, wanted[server], rows);
  };
  CORRO_TRY(call(opened, opened.describe("pull"), options_.patience, ask));
  for (size_t i = 0; i < ids.size(); ++i)
    std::copy_n(rows.data() + keys.row_of[i] * dim, dim, values.data() + i * dim);
  return {};
}

// -- push -----------------------------------------------------------------------------------------

void ServedTables::tell_gradients(size_t server, TableNumber table, const ServerKeys& mine,
                                  std::span<const float> sums) {
  const Opened& opened = tables_[table];
  const size_t dim = opened.spec().dim;
  const size_t most = std::max<size_t>(1, kMessageBytes / (dim * sizeof(float)));
  const auto patience = std::chrono::ceil<std::chrono::milliseconds>(options_.patience).count();
  PushHead head{.step = opened.steps + 1,
                .first = 0,
                .rows = mine.keys.size(),
                .patience_ms = static_cast<uint32_t>(std::min<int64_t>(patience, UINT32_MAX)),
                .lr = opened.spec().optimizer.lr};
  do {  // A rank without gradients says so.
    const size_t count = std::min(most, mine.keys.size() - head.first);
    ServerLink& link = *links_[server];
    const uint32_t request = link.next_request();
    Bytes message = encode_push(table, request, head,
                                std::span(mine.keys).subspan(head.first, count), opened.spec().dim);
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
  CORRO_TRY(check_finite(opened.spec(), ids, gradients));
  const DistinctKeys keys = distinct(ids);
  const std::vector<float> sums = add_up(keys, gradients, opened.spec().dim);
  const auto ask = [&] {
    const std::vector<ServerKeys> mine = for_push(keys.keys, opened.placement, lost_);
    for (size_t server = 0; server < links_.size(); ++server)
      if (!lost_[server]) tell_gradients(server, table, mine[server], sums);
  };
  const std::string what = opened.describe(fmt::format("push {}", opened.steps + 1));
  opened.broken = call(opened, what, options_.patience + kPushMargin, ask);
  CORRO_TRY(opened.broken);
  ++opened.steps;
  return {};
}

Status ServedTables::set_lr(TableNumber table, float lr) {
  TableSpec changed = tables_.at(table).spec();
  changed.optimizer.lr = lr;
  CORRO_TRY(check(changed));
  tables_[table].asked.spec = std::move(changed);
  return {};
}

// -- waiting --------------------------------------------------------------------------------------

Result<bool> ServedTables::wait_for_answers(const std::string& what, Duration patience) {
  const Time deadline = monotonic_now() + patience;
  failure_ = {};
  while (failure_.ok() && advance_links() && unanswered_ > 0) {
    if (deadline <= monotonic_now())
      failure_ = {Code::kDeadlineExceeded,
                  fmt::format("{}: no answer from {}", what, describe_silent())};
    if (options_.interrupted && options_.interrupted())
      failure_ = {Code::kCancelled, what + ": interrupted"};
    if (failure_.ok()) poll_links(std::min(deadline, monotonic_now() + kLook));
  }
  const bool answered = unanswered_ == 0;
  unanswered_ = 0;
  // Answers that come later are to nobody.
  for (size_t server = 0; server < links_.size() && !answered; ++server)
    if (!lost_[server]) links_[server]->forget_questions();
  CORRO_TRY(failure_);
  return answered;
}

/// False: a server is lost of which nobody knew.
bool ServedTables::advance_links() {
  lost_one_ = false;
  const Time now = monotonic_now();
  for (size_t server = 0; server < links_.size(); ++server) {
    if (lost_[server]) continue;
    const Status status = links_[server]->advance(now);
    if (!status.ok()) give_up(server, status.message());
  }
  return !lost_one_;
}

/// All ranks leave it, as this one does.
void ServedTables::give_up(size_t server, const std::string& why) {
  if (lost_[server]) return;
  lost_[server] = true;
  why_[server] = why;
  lost_one_ = true;
  for (size_t other = 0; other < links_.size(); ++other)
    if (!lost_[other]) links_[other]->tell_lost(static_cast<uint32_t>(server));
}

/// UNAVAILABLE if nobody has some rows any more.
Status ServedTables::check_rows(const Opened& opened) const {
  const auto shard = opened.placement.lost_shard(lost_);
  if (!shard) return {};
  std::string text;
  for (const uint16_t server : opened.placement.owners_of_shard(*shard))
    text += (text.empty() ? "" : "; ") + why_[server];
  return {Code::kUnavailable, text};
}

void ServedTables::poll_links(Time until) {
  std::vector<pollfd> watched;
  for (size_t server = 0; server < links_.size(); ++server) {
    const ServerLink& link = *links_[server];
    if (lost_[server]) continue;
    until = std::min(until, link.wake());
    if (link.fd() >= 0) watched.push_back({link.fd(), link.events(), 0});
  }
  const Duration left = std::max(Duration::zero(), until - monotonic_now());
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  (void)poll(watched.data(), watched.size(), static_cast<int>(ms));
}

std::string ServedTables::describe_silent() const {
  for (size_t server = 0; server < links_.size(); ++server)
    if (!lost_[server] && links_[server]->has_questions()) return links_[server]->describe();
  return "a server";
}

}  // namespace

std::unique_ptr<Tables> served_tables(const ServedOptions& options) {
  return std::make_unique<ServedTables>(options);
}

}  // namespace corro::table
