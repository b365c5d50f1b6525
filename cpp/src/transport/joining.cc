#include "transport/joining.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace corro::transport {
namespace {

using Kind = JoiningAction::Kind;

/// So long nothing happens before the bootstrap is asked for everybody.
constexpr Duration kQuiet = std::chrono::seconds(1);
/// So long a rank that knows that the job cannot start goes on telling others.
constexpr Duration kGrace = std::chrono::seconds(1);
/// At a time.
constexpr size_t kMostAsked = 64;

}  // namespace

std::string list_ranks(const std::vector<int32_t>& ranks) {
  constexpr size_t kMostNamed = 8;
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  const bool all = ranks.size() <= kMostNamed;
  const size_t before_and = all ? ranks.size() - 1 : kMostNamed;
  const auto end = ranks.begin() + static_cast<std::ptrdiff_t>(before_and);
  const std::string named = fmt::format("ranks {}", fmt::join(ranks.begin(), end, ", "));
  if (all) return fmt::format("{} and {}", named, ranks.back());
  return fmt::format("{} and {} more", named, ranks.size() - kMostNamed);
}

Joining::Joining(Options options)
    : options_(std::move(options)),
      introductions_(static_cast<size_t>(options_.size)),
      found_(static_cast<size_t>(options_.size)),
      asked_(static_cast<size_t>(options_.size)),
      unknown_(options_.size - 1),
      moved_(options_.started) {
  introductions_[static_cast<size_t>(options_.rank)] = options_.introduction;
  const int32_t size = options_.size;
  for (int32_t distance = 1; distance < size; distance *= 2) {
    rounds_.push_back({.target = before(options_.rank, size - distance),
                       .source = before(options_.rank, distance),
                       .count = std::min(distance, size - distance)});
    if (distance > size / 2) break;
  }
  // Rank 0 first: its settings are what those of all others are compared with.
  if (options_.rank != 0) ask(0);
  for (const Round& round : rounds_) ask(round.target);
}

int32_t Joining::before(int32_t rank, int32_t distance) const {
  return rank >= distance ? rank - distance : rank - distance + options_.size;
}

/// True if the introductions of `last` and the ranks before it are here, `count` in all.
bool Joining::knows(int32_t last, int32_t count) const {
  for (int32_t i = 0; i < count; ++i) {
    if (introductions_[static_cast<size_t>(before(last, i))].empty()) return false;
  }
  return true;
}

Joining::Round* Joining::round_to(int32_t rank) {
  const auto found = std::ranges::find(rounds_, rank, &Round::target);
  return found == rounds_.end() ? nullptr : &*found;
}

void Joining::ask(int32_t rank) {
  const auto i = static_cast<size_t>(rank);
  if (asked_[i]) return;
  asked_[i] = true;
  actions_.push_back({.kind = Kind::kAsk, .rank = rank});
}

void Joining::found(int32_t rank, Time now) {
  found_[static_cast<size_t>(rank)] = true;
  advance(now);
}

void Joining::gone(int32_t rank, Status why) {
  CORRO_CHECK(!why.ok(), rank);
  const Round* round = round_to(rank);
  const bool needed = introductions_[static_cast<size_t>(rank)].empty() ||
                      (round != nullptr && round->state != Round::State::kDone);
  if (needed && failure_.ok()) failure_ = refusal_.ok() ? std::move(why) : refusal_;
}

/// Dials the targets of rounds that can be told now.
void Joining::advance(Time now) {
  moved_ = now;
  for (Round& round : rounds_) {
    if (round.state != Round::State::kWaiting || !found_[static_cast<size_t>(round.target)])
      continue;
    if (known_before_ < round.count) continue;
    round.state = Round::State::kDialling;
    actions_.push_back({.kind = Kind::kDial, .rank = round.target});
  }
}

void Joining::linked(int32_t rank, Time now) {
  moved_ = now;
  Round* round = round_to(rank);
  if (round == nullptr || round->state != Round::State::kDialling) return;
  round->state = Round::State::kTelling;
  JoiningAction tell{
      .kind = Kind::kTell, .rank = rank, .round = static_cast<uint8_t>(round - rounds_.data())};
  for (int32_t i = 0; i < round->count; ++i) tell.ranks.push_back(before(options_.rank, i));
  actions_.push_back(std::move(tell));
}

void Joining::unlinked(int32_t rank, Time now) {
  moved_ = now;
  Round* round = round_to(rank);
  if (round == nullptr || round->state != Round::State::kTelling) return;
  round->state = Round::State::kDialling;
  actions_.push_back({.kind = Kind::kDial, .rank = rank});
}

void Joining::introduced(int32_t from, uint8_t round, int32_t rank, Bytes introduction, Time now) {
  if (round >= rounds_.size() || rounds_[round].source != from) return;
  if (rank < 0 || rank >= options_.size || introduction.empty()) return;
  Bytes& known = introductions_[static_cast<size_t>(rank)];
  moved_ = now;
  if (!known.empty()) return;
  known = std::move(introduction);
  --unknown_;
  while (known_before_ < options_.size &&
         !introductions_[static_cast<size_t>(before(options_.rank, known_before_))].empty()) {
    ++known_before_;
  }
}

void Joining::told(int32_t from, uint8_t round, Time now) {
  if (round >= rounds_.size() || rounds_[round].source != from) return;
  if (knows(from, rounds_[round].count))
    actions_.push_back({.kind = Kind::kKnown, .rank = from, .round = round});
  advance(now);
}

void Joining::known(int32_t from, uint8_t round, Time now) {
  if (round >= rounds_.size() || rounds_[round].target != from) return;
  if (rounds_[round].state == Round::State::kTelling) rounds_[round].state = Round::State::kDone;
  moved_ = now;
}

void Joining::refuse(Status why, Time now) {
  if (!refusal_.ok() || !failure_.ok()) return;
  refusal_ = std::move(why);
  refuse_at_ = now + kGrace;
}

void Joining::expire(Time now) {
  if (over()) {
    if (failure_.ok() && !refusal_.ok()) failure_ = refusal_;
    return;
  }
  if (now >= refuse_at_) {
    failure_ = refusal_;
  } else if (last_look_) {
    failure_ = late(now);
  } else if (now >= options_.deadline || now - moved_ >= kQuiet) {
    last_look_ = now >= options_.deadline;
    moved_ = now;
    std::vector<int32_t> ranks = missing();
    ranks.resize(std::min(ranks.size(), kMostAsked));
    for (const int32_t rank : ranks) {
      // Once more even if it was found: it may be gone since.
      asked_[static_cast<size_t>(rank)] = true;
      actions_.push_back({.kind = Kind::kAsk, .rank = rank});
    }
  }
}

std::vector<JoiningAction> Joining::take_actions() { return std::exchange(actions_, {}); }

Time Joining::next_wake() const {
  if (over()) return Time::never();
  return std::min({options_.deadline, refuse_at_, moved_ + kQuiet});
}

bool Joining::over() const {
  if (!failure_.ok()) return true;
  return unknown_ == 0 && std::ranges::all_of(rounds_, [](const Round& round) {
           return round.state == Round::State::kDone;
         });
}

std::vector<int32_t> Joining::missing() const {
  std::vector<int32_t> ranks;
  for (int32_t rank = 0; rank < options_.size; ++rank) {
    if (introductions_[static_cast<size_t>(rank)].empty()) ranks.push_back(rank);
  }
  return ranks;
}

void Joining::note_trouble(int32_t rank, std::string how) {
  const auto found = std::ranges::find(trouble_, rank, &std::pair<int32_t, std::string>::first);
  if (found == trouble_.end()) {
    trouble_.emplace_back(rank, std::move(how));
  } else {
    found->second = std::move(how);
  }
}

Status Joining::late(Time now) const {
  const double seconds = std::chrono::duration<double>(now - options_.started).count();
  const std::string waited =
      fmt::format("connect: rank {} of {} waited {:.1f} s", options_.rank, options_.size, seconds);
  std::vector<int32_t> ranks = missing();
  std::vector<int32_t> absent;
  for (const int32_t rank : ranks) {
    const auto i = static_cast<size_t>(rank);
    if (asked_[i] && !found_[i]) absent.push_back(rank);
  }
  if (!absent.empty()) {
    return {Code::kDeadlineExceeded,
            fmt::format("{}, but {} did not start: are all ranks running, with the same job and "
                        "bootstrap?",
                        waited, list_ranks(absent)),
            {.rank = absent.front(), .op = "connect", .phase = "rendezvous"}};
  }
  // Everybody is known: a target has not said that it knows what this rank had to tell.
  if (ranks.empty()) {
    for (const Round& round : rounds_) {
      if (round.state != Round::State::kDone) ranks.push_back(round.target);
    }
    std::ranges::sort(ranks);
  }
  std::string why = fmt::format("rank {} has not connected to this one", ranks.front());
  for (const auto& [rank, how] : trouble_) why = fmt::format("rank {}: {}", rank, how);
  return {Code::kDeadlineExceeded,
          fmt::format("{} and is not connected to {}; {}", waited, list_ranks(ranks), why),
          {.rank = ranks.front(), .op = "connect", .phase = "connect"}};
}

}  // namespace corro::transport
