#include "transport/endpoint.h"

#include <utility>

#include "base/check.h"
#include "transport/inbox.h"
#include "transport/outbox.h"

namespace corro::transport {

struct Endpoint::Impl {
  Impl(std::unique_ptr<Stream> its_stream, ControlHandler on_control, EndpointLimits limits,
       StrayHandler on_stray, obs::Metrics its_metrics)
      : stream(std::move(its_stream)),
        metrics(std::move(its_metrics)),
        outbox(stream.get(), metrics),
        inbox(stream.get(), outbox, metrics, limits, std::move(on_control), std::move(on_stray)) {}

  std::unique_ptr<Stream> stream;
  obs::Metrics metrics;
  Outbox outbox;
  Inbox inbox;
};

Endpoint::Endpoint(std::unique_ptr<Stream> stream, ControlHandler on_control, EndpointLimits limits,
                   StrayHandler on_stray, const obs::Metrics& metrics)
    : impl_(std::make_unique<Impl>(std::move(stream), std::move(on_control), limits,
                                   std::move(on_stray), metrics)) {}

Endpoint::~Endpoint() { close(); }

void Endpoint::connect(std::unique_ptr<Stream> stream) {
  CORRO_CHECK(!connected());
  if (closed()) return stream->close();
  impl_->stream = std::move(stream);
  impl_->outbox.connect(*impl_->stream);
  impl_->inbox.connect(*impl_->stream);
}

bool Endpoint::connected() const { return impl_->stream != nullptr; }

void Endpoint::count_on(obs::Link link) { impl_->outbox.count_on(std::move(link)); }

void Endpoint::post_send(SendRequest& request) {
  CORRO_CHECK(!request.done, request.key.lane.key, request.key.op, request.key.step);
  impl_->outbox.post(request);
}

void Endpoint::post_recv(RecvRequest& request) {
  CORRO_CHECK(!request.done, request.key.lane.key, request.key.op, request.key.step);
  impl_->inbox.post(request);
}

void Endpoint::send_control(const wire::Control& control) { impl_->outbox.post(control); }

void Endpoint::cancel(const LaneKey& lane, uint64_t op) {
  impl_->outbox.cancel(lane, op);
  impl_->inbox.cancel(lane, op);
}

void Endpoint::retire_below(const LaneKey& lane, uint64_t op) {
  impl_->inbox.retire_below(lane, op);
}

void Endpoint::close_lane(const LaneKey& lane) {
  impl_->outbox.close_lane(lane);
  impl_->inbox.close_lane(lane);
}

void Endpoint::start_epoch(uint32_t epoch) { impl_->inbox.start_epoch(epoch); }

bool Endpoint::awaits() const { return !closed() && impl_->inbox.awaits(); }

bool Endpoint::progress() {
  if (closed() || !connected()) return false;
  impl_->outbox.start_turn();
  const bool received = impl_->inbox.fill();
  const bool sent = impl_->outbox.flush();
  return received || sent;
}

bool Endpoint::closed() const { return impl_->inbox.ended(); }

std::string Endpoint::describe() const {
  if (!connected()) return "not connected";
  const std::string& failure = impl_->inbox.failure();
  return failure.empty() ? impl_->stream->describe() : impl_->stream->describe() + ": " + failure;
}

bool Endpoint::has_unsent() const { return !closed() && impl_->outbox.has_unsent(); }

int Endpoint::poll_fd() const { return connected() ? impl_->stream->poll_fd() : -1; }

const obs::Metrics& Endpoint::metrics() const { return impl_->metrics; }
const std::optional<MessageHead>& Endpoint::last_message() const {
  return impl_->inbox.last_message();
}

void Endpoint::close() { impl_->inbox.end({}); }

void Endpoint::close_in_child() {
  if (connected()) impl_->stream->close_in_child();
}

}  // namespace corro::transport
