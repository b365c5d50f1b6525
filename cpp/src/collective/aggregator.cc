#include "collective/aggregator.h"

#include <algorithm>
#include <exception>
#include <set>
#include <utility>

#include "collective/schedule/selection.h"

namespace corro::collective {
namespace {

using transport::RecvRequest;

/// A lane that was idle while others had so many calls gives its memory back, and is forgotten after
/// so many: it is perhaps over.
constexpr uint64_t kKeepsMemory = 64, kKeepsLane = 4096;

}  // namespace

/// One rank's messages on kServedLane, one after the other.
class Aggregator::Connection {
 public:
  Connection(int32_t rank, std::unique_ptr<transport::Stream> stream)
      : rank_(rank), endpoint_(std::move(stream), [](const wire::Control&) {}) {
    expect(kServedGroupBytes);
  }

  [[nodiscard]] int32_t rank() const { return rank_; }
  [[nodiscard]] transport::Endpoint& endpoint() { return endpoint_; }
  [[nodiscard]] bool is_over() const { return endpoint_.closed() || next_.mismatch; }
  /// The message that has come, if one has; then the next one is expected.
  [[nodiscard]] bool has_message() const { return next_.done && !next_.mismatch; }
  [[nodiscard]] BytesView message() const { return bytes_; }
  void take() {
    endpoint_.retire_below(kServedLane, ++number_);
    expect(kServedCallBytes);
  }

 private:
  void expect(size_t bytes) {
    bytes_.resize(bytes);
    next_ = {
        .key = {.lane = kServedLane, .op = number_, .step = 0}, .signature = {}, .into = bytes_};
    endpoint_.post_recv(next_);
  }

  const int32_t rank_;
  uint64_t number_ = 0;  ///< Of the message that is expected.
  Bytes bytes_;
  RecvRequest next_;
  transport::Endpoint endpoint_;
};

/// The ranks of one epoch.
class Aggregator::Group {
 public:
  explicit Group(const ServedGroup& facts)
      : facts_(facts), connections_(static_cast<size_t>(facts.size)) {}

  [[nodiscard]] const ServedGroup& facts() const { return facts_; }
  /// False if it is there already.
  bool add(std::unique_ptr<Connection> connection) {
    auto& place = connections_[static_cast<size_t>(connection->rank())];
    if (place != nullptr) return false;
    place = std::move(connection);
    ++present_;
    return true;
  }
  [[nodiscard]] bool is_over() const { return over_; }
  [[nodiscard]] size_t connections() const { return static_cast<size_t>(present_); }

  /// Adds the operations that end to `served`.
  bool poll(uint64_t& served) {
    bool moved = false;
    for (const auto& connection : connections_) {
      if (connection == nullptr) continue;
      moved = connection->endpoint().progress() || moved;
      over_ = over_ || connection->is_over();
    }
    if (over_ || present_ < facts_.size) return moved;
    for (const auto& connection : connections_) moved = hear(*connection) || moved;
    for (auto& [key, lane] : lanes_) moved = lane.poll(*this, served) || moved;
    std::erase_if(lanes_,
                  [this](const auto& one) { return one.second.is_idle_for(kKeepsLane, *this); });
    return moved;
  }

 private:
  struct Served {
    ServedCall call;
    OpRequest request;
    std::unique_ptr<Operation> operation;
    std::set<int32_t> callers;
  };
  struct Lane {
    Links links;
    std::map<uint64_t, Served> operations;  ///< By their numbers.
    uint64_t next = 0;                      ///< After the last one that was called.
    uint64_t called_at = 0;                 ///< Calls of the group before its last one.

    bool poll(Group& group, uint64_t& served) {
      bool moved = false;
      for (auto one = operations.begin(); one != operations.end();) {
        Operation* const operation = one->second.operation.get();
        const Progress progress = operation == nullptr ? Progress::kDone : operation->poll(true);
        moved = moved || (progress != Progress::kIdle && operation != nullptr);
        if (progress != Progress::kDone) {
          ++one;
          continue;
        }
        if (operation != nullptr && !operation->status().ok()) group.over_ = true;
        one->second.operation.reset();
        const bool all_called = one->second.callers.size() == links.endpoints.size() - group.rest();
        if (all_called) ++served;
        one = all_called ? operations.erase(one) : std::next(one);
      }
      retire_below(links, operations.empty() ? next : operations.begin()->first);
      if (is_idle_for(kKeepsMemory, group) && links.buffers.kept() > 0)
        links.buffers = BufferPool(kMostKept);
      return moved;
    }
    [[nodiscard]] bool is_idle_for(uint64_t calls, const Group& group) const {
      return operations.empty() && group.calls_ - called_at > calls;
    }
  };

  [[nodiscard]] size_t rest() const { return static_cast<size_t>(facts_.aggregators); }

  bool hear(Connection& connection) {
    bool heard = false;
    while (!over_ && connection.has_message()) {
      const auto call = decode_served_call(connection.message());
      if (!call.ok() || !take(connection.rank(), *call)) over_ = true;
      if (!over_) connection.take();
      heard = true;
    }
    return heard;
  }

  /// False if it is no call that the ranks of one group make.
  bool take(int32_t rank, const ServedCall& call) {
    if (call.lane == kServedLane) return false;
    Lane& lane = lane_of(call.lane);
    lane.called_at = calls_++;
    const auto [found, is_new] = lane.operations.try_emplace(call.op);
    Served& served = found->second;
    if (is_new) {
      if (call.op < lane.next) return false;
      lane.next = call.op + 1;
      served.call = call;
      served.request = request_of(call, facts_.aggregators);
      served.operation =
          make_schedule_operation(lane.links, call.op, served.request, schedule_for(call));
    }
    return served.call == call && served.callers.insert(rank).second;
  }

  Lane& lane_of(const LaneKey& key) {
    const auto [found, is_new] = lanes_.try_emplace(key);
    if (!is_new) return found->second;
    Links& links = found->second.links;
    links.lane = key;
    links.rank = facts_.size + facts_.index;
    for (const auto& connection : connections_) links.endpoints.push_back(&connection->endpoint());
    links.endpoints.resize(links.endpoints.size() + rest());
    for (size_t r = 0; r < links.endpoints.size(); ++r)
      links.world_ranks.push_back(static_cast<int32_t>(r));
    return found->second;
  }

  [[nodiscard]] std::shared_ptr<const Schedule> schedule_for(const ServedCall& call) const {
    const OpRequest request = request_of(call, facts_.aggregators);
    return std::make_shared<const Schedule>(
        generate(served_problem({.kind = OpKind::kAllreduce,
                                 .size = facts_.size,
                                 .count = call.count,
                                 .at_once = folds_at_once(request),
                                 .chunk_count = kPipelineChunkBytes / size_of(call.dtype)},
                                facts_.aggregators, call.folds_as, facts_.size + facts_.index),
                 Algorithm::kServed));
  }

  const ServedGroup facts_;
  std::vector<std::unique_ptr<Connection>> connections_;  ///< By rank.
  int32_t present_ = 0;
  std::map<LaneKey, Lane> lanes_;
  uint64_t calls_ = 0;
  bool over_ = false;
};

Aggregator::Aggregator() = default;
Aggregator::~Aggregator() = default;

void Aggregator::admit(int32_t rank, std::unique_ptr<transport::Stream> stream) {
  admitted_.push_back(std::make_unique<Connection>(rank, std::move(stream)));
}

/// True once the connection has its place, or none.
bool Aggregator::meet(std::unique_ptr<Connection>& connection) {
  (void)connection->endpoint().progress();
  if (connection->is_over()) return true;
  if (!connection->has_message()) return false;
  const auto facts = decode_served_group(connection->message());
  if (!facts.ok() || facts->rank != connection->rank()) return true;
  std::erase_if(groups_, [&](const auto& one) { return one.first < facts->epoch; });
  if (!groups_.empty() && groups_.rbegin()->first > facts->epoch) return true;
  auto& group = groups_[facts->epoch];
  if (group == nullptr) group = std::make_unique<Group>(*facts);
  if (!group->facts().agrees_with(*facts)) return true;
  connection->take();
  (void)group->add(std::move(connection));
  return true;
}

bool Aggregator::poll() {
  bool moved = false;
  for (auto& [epoch, group] : groups_) {
    try {
      moved = group->poll(served_) || moved;
    } catch (const std::exception&) {  // No memory for it: ranks do without.
      group.reset();
    }
  }
  std::erase_if(groups_,
                [](const auto& one) { return one.second == nullptr || one.second->is_over(); });
  // Last: a rank that comes again finds the group of its last engine gone.
  const size_t met = std::erase_if(admitted_, [this](auto& one) { return meet(one); });
  return moved || met > 0;
}

size_t Aggregator::connections() const {
  size_t open = admitted_.size();
  for (const auto& [epoch, group] : groups_) open += group->connections();
  return open;
}

}  // namespace corro::collective
