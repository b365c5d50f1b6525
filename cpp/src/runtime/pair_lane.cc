#include "runtime/pair_lane.h"

#include <algorithm>

#include <fmt/format.h>

namespace corro::runtime {

/// Both ends derive the same key: from the sender, the receiver and the tag.
PairLane::Link& PairLane::link_of(const collective::OpRequest& request) {
  const auto [found, made] = links_.try_emplace({request.kind, request.root, request.tag});
  Link& link = found->second;
  if (!made) return link;
  const bool sends = request.kind == OpKind::kSend;
  const int32_t from = sends ? facts_.rank : request.root;
  const int32_t to = sends ? request.root : facts_.rank;
  link.pair = {.lane = derive_key(facts_.key, fmt::format("pair {} {} {}", from, to, request.tag)),
               .endpoint = parts_.peers.endpoint(facts_.member(request.root)),
               .own_world_rank = facts_.own_world_rank(),
               .peer_world_rank = facts_.world_rank(request.root)};
  return link;
}

void PairLane::submit(const std::shared_ptr<WorkState>& work, size_t index, Time now) {
  auto made = make_flight(parts_, work, index, now);
  Link& link = link_of(*made->request);
  flights_.push_back(std::make_unique<PairFlight>(PairFlight{std::move(*made), &link}));
  Flight& flight = flights_.back()->flight;
  flight.op = link.next++;
  record_flight(parts_, facts_.key, flight);
  flight.start(parts_, collective::make_pair_operation(link.pair, flight.op, *flight.request),
               true);
}

bool PairLane::poll(Time now) {
  bool moved = false;
  for (const auto& pair : flights_) {
    Flight& flight = pair->flight;
    if (flight.over) continue;
    const collective::Progress progress = move_flight(parts_, facts_, flight, true, now);
    moved = moved || progress != collective::Progress::kIdle;
    if (progress != collective::Progress::kDone) continue;
    const Status outcome = flight.operation->status();  // end() destroys the operation
    end(*pair, outcome);
  }
  sweep();
  return moved;
}

void PairLane::end(PairFlight& ended, const Status& status) {
  Link& link = *ended.link;
  end_flight(parts_, ended.flight, status);
  if (ended.flight.op != link.completed) {
    link.over.insert(ended.flight.op);
    return;
  }
  ++link.completed;
  while (!link.over.empty() && link.over.erase(link.completed) > 0) ++link.completed;
  link.pair.endpoint->retire_below(link.pair.lane, link.completed);
}

void PairLane::sweep() {
  std::erase_if(flights_, [](const auto& pair) { return pair->flight.over; });
}

void PairLane::fail(const Status& cause) {
  for (const auto& pair : flights_) {
    if (!pair->flight.over) end(*pair, describe_failure(facts_, pair->flight, cause));
  }
  sweep();
}

void PairLane::close(const Status& cause) {
  for (const auto& pair : flights_) {
    if (!pair->flight.over) end(*pair, cause);
  }
  sweep();
}

void PairLane::check(Time now) {
  for (const auto& pair : flights_) {
    Flight& flight = pair->flight;
    const int32_t awaited = flight.request->root;
    suspect_awaited(parts_, flight, awaited, now);
    if (now < flight.deadline) continue;
    const auto& last = pair->link->pair.endpoint->last_message();
    const std::string did =
        last
            ? "its last message was of " + collective::Signature::unpack(last->signature).describe()
            : fmt::format("it has sent rank {} nothing yet", facts_.own_world_rank());
    failure_ = deadline_failure(facts_, awaited, awaited, now - flight.submitted, did);
    return;
  }
}

Time PairLane::next_deadline() const {
  Time earliest = Time::never();
  for (const auto& pair : flights_)
    earliest = std::min({earliest, pair->flight.deadline, pair->flight.suspect_at()});
  return earliest;
}

void PairLane::end_departed() {
  for (const auto& pair : flights_) {
    if (pair->flight.over) continue;
    const int32_t awaited = pair->flight.request->root;
    if (!parts_.peers.departed(facts_.member(awaited))) continue;
    end(*pair, describe_failure(facts_, pair->flight, has_left(facts_.world_rank(awaited))));
  }
  sweep();
}

void PairLane::close_links() {
  for (const auto& [id, link] : links_) {
    // The peer may have been removed since.
    transport::Endpoint* endpoint = parts_.peers.endpoint(facts_.member(std::get<1>(id)));
    if (endpoint != nullptr) endpoint->close_lane(link.pair.lane);
  }
}

}  // namespace corro::runtime
