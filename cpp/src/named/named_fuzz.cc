// Named operations: the two decoders, a leader fed by a hostile member, and a member fed by a
// hostile leader.
#include <algorithm>
#include <span>

#include "base/check.h"
#include "named/named_messages.h"
#include "named/named_negotiator.h"
#include "named/named_queue.h"

namespace corro::named {
namespace {

NamedEntry entry(uint8_t which) {
  return {.name = std::string(1, static_cast<char>('a' + which % 4)),
          .op = {.signature = {.kind = OpKind::kAllreduce,
                               .dtype = DType::kF32,
                               .count = uint64_t{1} + which / 128U}}};
}

void check_round_trip(BytesView bytes) {
  if (const auto message = decode_announcement(bytes); message.ok()) {
    CORRO_CHECK(std::ranges::equal(bytes, encode(*message)));
  }
  if (const auto message = decode_decision(bytes); message.ok()) {
    CORRO_CHECK(std::ranges::equal(bytes, encode(*message)));
  }
}

/// The input as commands: a length byte and that many bytes of a message; 0 is a submission or a
/// join, 255 time that passes.
void run_commands(BytesView bytes) {
  Negotiator negotiator({0, 1});
  NamedQueue honest;    // Rank 0 beside the hostile member; talks to the negotiator.
  NamedQueue deceived;  // Its leader is the input.
  Time now;
  uint64_t token = 0;
  ByteReader reader(bytes);
  while (const auto command = reader.read<uint8_t>()) {
    const uint8_t which = reader.read<uint8_t>().value_or(0);
    if (*command == 0 && which == 255) {
      (void)honest.join(++token);
      (void)deceived.join(++token);
    } else if (*command == 0) {
      (void)honest.submit(entry(which), ++token, now);
      (void)deceived.submit(entry(which), ++token, now);
    } else if (*command == 255) {
      now = now + std::chrono::seconds(which);
      honest.ask(entry(which).name);
      if (which % 2 == 0) honest.withdraw(entry(which).name, token);
      deceived.check_patience(now);
      deceived.withdraw(entry(which).name, token);
    } else if (const auto message = reader.read_bytes(*command)) {
      (void)negotiator.receive(1, *message);
      (void)deceived.receive(*message);
    }
    (void)deceived.take_announcement();
    while (const auto announcement = honest.take_announcement()) {
      CORRO_CHECK(negotiator.receive(0, *announcement).ok(), "an honest rank is refused");
    }
    while (const auto decision = negotiator.take_decision()) {
      CORRO_CHECK(honest.receive(*decision).ok(), "an honest leader is refused");
    }
  }
}

}  // namespace
}  // namespace corro::named

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  corro::named::check_round_trip(bytes);
  corro::named::run_commands(bytes);
  return 0;
}
