// Traffic: under which metrics an endpoint counts what it moves over its stream.
#pragma once

#include "obs/metrics.h"
#include "transport/stream.h"

namespace corro::transport {

struct Traffic {
  obs::Metric messages_sent = obs::Metric::kMessagesSentTcp;
  obs::Metric messages_received = obs::Metric::kMessagesReceivedTcp;
  obs::Metric bytes_sent = obs::Metric::kBytesSentTcp;
  obs::Metric bytes_received = obs::Metric::kBytesReceivedTcp;
};

/// A stream without a descriptor goes through memory that both ends map.
[[nodiscard]] inline Traffic traffic_of(const Stream& stream) {
  if (stream.poll_fd() >= 0) return {};
  return {.messages_sent = obs::Metric::kMessagesSentShm,
          .messages_received = obs::Metric::kMessagesReceivedShm,
          .bytes_sent = obs::Metric::kBytesSentShm,
          .bytes_received = obs::Metric::kBytesReceivedShm};
}

}  // namespace corro::transport
