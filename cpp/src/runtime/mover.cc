#include "runtime/mover.h"

#include "base/exception.h"

namespace corro::runtime {
namespace {

/// While nothing is in flight, a look at whether something may start comes every so many moves: it
/// takes longer than a look for the peers of a small operation.
constexpr uint32_t kIdleMovesPerLook = 16;

}  // namespace

void Mover::leave(Post post) {
  posts_.lock()->push_back(std::move(post));
  posted_.fetch_add(1, std::memory_order_seq_cst);
}

void Mover::run_posts() {
  if (!has_posts()) return;
  std::vector<Post> posts = std::exchange(spare_, {});
  posts.swap(*posts_.lock());
  posted_.fetch_sub(static_cast<uint32_t>(posts.size()), std::memory_order_seq_cst);
  for (const Post& post : posts) {
    if (post.group != nullptr) {
      submit(*post.group, post.work);
    } else {
      post.task(*engine_);
    }
  }
  posts.clear();
  spare_ = std::move(posts);
}

void Mover::take_news() {
  if (!watch_.has_news()) return;
  // Streams first: what a rank has said before its end counts.
  for (transport::JoinedPeer& joined : watch_.take_streams()) {
    const auto& segment = engine_->peers().peer(joined.rank).segment;
    if (segment != nullptr) {
      const int bell = peer_bells_[static_cast<size_t>(joined.rank)].get();
      joined.stream->set_doorbell(transport::Doorbell(&segment->header().sleeping, bell));
    }
    watch_.add_stream(joined.rank, joined.stream->poll_fd());
    engine_->peers().connect(joined.rank, std::move(joined.stream));
  }
  ask_readable();
  if (watch_.epoch_ends()) engine_->expect_epoch_end();
  if (const auto why = watch_.take_epoch_end()) engine_->end_epoch(*why);
  for (const Loss& loss : watch_.take_losses()) {
    if (!loss.unmet || !engine_->peers().depart_unmet(loss.rank))
      engine_->peer_ended(loss.rank, loss.how);
  }
}

void Mover::ask_readable() {
  if (!watch_.knows_readable() || engine_->peers().ask_readable) return;
  engine_->peers().ask_readable = [this](Peers& peers) {
    watch_.for_each_readable([&peers](MemberId member) { peers.mark_readable(member); });
  };
}

void Mover::submit(Group& group, const std::shared_ptr<WorkState>& work) {
  try {
    engine_->submit(group, work, monotonic_now());
  } catch (const std::exception& why) {
    const Status cause = give_up(why);
    while (work->left > 0) work->finish_one(cause);
  }
}

bool Mover::move() {
  try {
    run_posts();
    return move_engine();
  } catch (const std::exception& why) {
    (void)give_up(why);
    return true;
  }
}

void Mover::move_flights() {
  if (!engine_->in_flight() && (++idle_moves_ < kIdleMovesPerLook || engine_->idle())) {
    idle_moves_ %= kIdleMovesPerLook;
    return;
  }
  try {
    // What has moved goes on at the next call.
    idle_moves_ = move_engine() ? kIdleMovesPerLook - 1 : 0;
  } catch (const std::exception& why) {
    (void)give_up(why);
  }
}

bool Mover::move_engine() {
  take_news();
  const bool moved = engine_->poll(monotonic_now());
  watch_.want(engine_->peers().take_wanted());
  return moved;
}

Status Mover::give_up(const std::exception& why) {
  const Status cause = status_of(why);
  engine_->fail_all(cause);
  return cause;
}

}  // namespace corro::runtime
