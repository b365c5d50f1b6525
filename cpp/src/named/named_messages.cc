#include "named/named_messages.h"

#include <bit>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "collective/operation/codec.h"

namespace corro::named {
namespace {

constexpr uint8_t kTagCached = 0;
constexpr uint8_t kTagEntry = 1;
constexpr size_t kCachedBytes = 5;  // The least that a reference takes.

/// Takes what a ByteWriter takes, and counts the bytes.
class ByteCounter {
 public:
  template <std::integral T>
  void write(T /*value*/) {
    size_ += sizeof(T);
  }
  void write_string(std::string_view text) { size_ += sizeof(uint32_t) + text.size(); }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  size_t size_ = 0;
};

/// The only place that knows the layout of a reference: what counts its bytes runs it too.
template <typename Writer>
void write_ref(Writer& writer, const NamedRef& ref) {
  if (ref.cached != NamedRef::kNone) {
    writer.write(kTagCached);
    writer.write(ref.cached);
    return;
  }
  writer.write(kTagEntry);
  writer.write_string(ref.entry.name);
  const Fusible& op = ref.entry.op;
  writer.write(static_cast<uint8_t>(op.signature.kind));
  writer.write(static_cast<uint8_t>(op.signature.dtype));
  writer.write(static_cast<uint8_t>(op.signature.reduce_op));
  writer.write(op.signature.root);
  writer.write(op.signature.count);
  writer.write(op.signature.shape);
  writer.write(op.signature.extras);
  writer.write(op.signature.element);
  writer.write(std::bit_cast<uint64_t>(op.prescale));
  writer.write(std::bit_cast<uint64_t>(op.postscale));
  writer.write_string(op.codec);
}

/// Reads what the writers above wrote; after the first failure every read fails and values stay as
/// they were.
class MessageReader {
 public:
  explicit MessageReader(BytesView bytes) : reader_(bytes) {}

  template <std::integral T>
  void read(T& value) {
    if (const auto field = reader_.read<T>()) value = *field;
  }
  template <typename Enum>
  void read_enum(Enum& value, int limit) {
    const auto field = reader_.read<uint8_t>();
    if (!field) return;
    if (*field >= limit) return fail();
    value = static_cast<Enum>(*field);
  }
  void read(double& value) {
    if (const auto bits = reader_.read<uint64_t>()) value = std::bit_cast<double>(*bits);
  }
  void read(std::string& text, size_t cap) {
    if (auto field = reader_.read_string(cap)) text = std::move(*field);
  }
  /// Reads a count of items of at least `item_bytes` each; more than fit fail.
  [[nodiscard]] uint32_t read_count(size_t item_bytes) {
    const auto count = reader_.read<uint32_t>();
    if (!count) return 0;
    if (*count > reader_.remaining() / item_bytes) {
      fail();
      return 0;
    }
    return *count;
  }
  void read(std::vector<NamedRef>& refs) {
    refs.resize(read_count(kCachedBytes));
    for (NamedRef& ref : refs) read(ref);
  }
  template <std::integral T>
  void read(std::vector<T>& numbers) {
    numbers.resize(read_count(sizeof(T)));
    for (T& number : numbers) read(number);
  }
  [[nodiscard]] bool done() const { return reader_.done() && !failed_; }

 private:
  void read(NamedRef& ref) {
    uint8_t tag = kTagEntry + 1;
    read_enum(tag, kTagEntry + 1);
    if (tag == kTagCached) {
      read(ref.cached);
      if (ref.cached == NamedRef::kNone) fail();
      return;
    }
    read(ref.entry.name, kMaxOperationName);
    Fusible& op = ref.entry.op;
    read_enum(op.signature.kind, kOpKindCount);
    read_enum(op.signature.dtype, kDTypeCount);
    read_enum(op.signature.reduce_op, kReduceOpCount);
    read(op.signature.root);
    read(op.signature.count);
    read(op.signature.shape);
    read(op.signature.extras);
    read(op.signature.element);
    read(op.prescale);
    read(op.postscale);
    read(op.codec, collective::kMostCodecName);
  }
  void fail() {
    failed_ = true;
    (void)reader_.read_bytes(reader_.remaining() + 1);
  }

  ByteReader reader_;
  bool failed_ = false;
};

void write_refs(ByteWriter& writer, const std::vector<NamedRef>& refs) {
  writer.write(static_cast<uint32_t>(refs.size()));
  for (const NamedRef& ref : refs) write_ref(writer, ref);
}

template <std::integral T>
void write_numbers(ByteWriter& writer, const std::vector<T>& numbers) {
  writer.write(static_cast<uint32_t>(numbers.size()));
  for (const T number : numbers) writer.write(number);
}

Status malformed(std::string_view what, size_t size) {
  return {Code::kInvalidArgument,
          fmt::format("named operations: malformed {} of {} bytes", what, size)};
}

/// Composers ask encoded_size() before they add; a message that is too long would end the group.
Bytes within_cap(Bytes bytes) {
  CORRO_CHECK(bytes.size() <= kMaxNamedMessage, bytes.size());
  return bytes;
}

void read_run(MessageReader& reader, Decision& message) {
  reader.read(message.fusion.threshold_bytes);
  reader.read(message.fusion.solo_bytes);
  reader.read(message.absent);
  reader.read(message.run);
}

void read_segments(MessageReader& reader, Decision& message) {
  reader.read(message.fusion.threshold_bytes);
  reader.read(message.fusion.solo_bytes);
  message.segments.resize(reader.read_count(sizeof(uint32_t)));
  for (auto& segment : message.segments) reader.read(segment);
}

}  // namespace

bool same(const NamedEntry& a, const NamedEntry& b) {
  return a.name == b.name && a.op.signature == b.op.signature &&
         std::bit_cast<uint64_t>(a.op.prescale) == std::bit_cast<uint64_t>(b.op.prescale) &&
         std::bit_cast<uint64_t>(a.op.postscale) == std::bit_cast<uint64_t>(b.op.postscale) &&
         a.op.codec == b.op.codec;
}

std::string describe(const NamedEntry& entry) {
  std::string text = entry.op.signature.describe();
  if (entry.op.prescale != 1) text += fmt::format(", prescale {}", entry.op.prescale);
  if (entry.op.postscale != 1) text += fmt::format(", postscale {}", entry.op.postscale);
  if (!entry.op.codec.empty()) text += fmt::format(", codec {}", entry.op.codec);
  return text;
}

uint32_t NamedCache::learn(const NamedEntry& entry) {
  if (const auto known = numbers_.find(entry.name); known != numbers_.end()) {
    entries_[known->second] = entry;
    return known->second;
  }
  if (entries_.size() == kCapacity) return NamedRef::kNone;
  const auto number = static_cast<uint32_t>(entries_.size());
  entries_.push_back(entry);
  numbers_.emplace(entry.name, number);
  return number;
}

uint32_t NamedCache::find(const NamedEntry& entry) const {
  const auto known = numbers_.find(entry.name);
  if (known == numbers_.end() || !same(entries_[known->second], entry)) return NamedRef::kNone;
  return known->second;
}

const NamedEntry* NamedCache::entry(uint32_t number) const {
  return number < entries_.size() ? &entries_[number] : nullptr;
}

NamedRef NamedCache::refer(const NamedEntry& entry) const {
  const uint32_t number = find(entry);
  if (number == NamedRef::kNone) return {.cached = NamedRef::kNone, .entry = entry};
  return {.cached = number};
}

Result<NamedEntry> NamedCache::resolve(const NamedRef& ref) const {
  if (ref.cached == NamedRef::kNone) return ref.entry;
  const NamedEntry* known = entry(ref.cached);
  if (known == nullptr) {
    return Status(Code::kInvalidArgument,
                  fmt::format("named operations: unknown number {}, {} are known", ref.cached,
                              entries_.size()));
  }
  return *known;
}

size_t encoded_size(const NamedRef& ref) {
  ByteCounter counter;
  write_ref(counter, ref);
  return counter.size();
}

Bytes encode(const Announcement& message) {
  ByteWriter writer;
  writer.write(static_cast<uint8_t>(message.kind));
  writer.write(message.mode);
  switch (message.kind) {
    case Announcement::Kind::kReady:
    case Announcement::Kind::kWaiting:
    case Announcement::Kind::kWithdraw:
      write_refs(writer, message.ready);
      break;
    case Announcement::Kind::kAccept:
    case Announcement::Kind::kRefuse:
      writer.write(message.plan);
      break;
    case Announcement::Kind::kFrozen:
      writer.write(message.started);
      break;
    case Announcement::Kind::kJoin:
      break;
  }
  return within_cap(writer.take());
}

Bytes encode(const Decision& message) {
  ByteWriter writer;
  writer.write(static_cast<uint8_t>(message.kind));
  writer.write(message.mode);
  switch (message.kind) {
    case Decision::Kind::kRun:
      writer.write(message.fusion.threshold_bytes);
      writer.write(message.fusion.solo_bytes);
      writer.write(message.absent);
      write_refs(writer, message.run);
      break;
    case Decision::Kind::kFail:
      writer.write_string(message.name);
      writer.write(message.rank);
      writer.write(static_cast<uint8_t>(message.cause));
      writer.write_string(message.text);
      break;
    case Decision::Kind::kStalled:
      writer.write_string(message.name);
      write_numbers(writer, message.missing);
      writer.write(message.missing_more);
      break;
    case Decision::Kind::kPropose:
      writer.write(message.plan);
      writer.write(message.fusion.threshold_bytes);
      writer.write(message.fusion.solo_bytes);
      writer.write(static_cast<uint32_t>(message.segments.size()));
      for (const auto& segment : message.segments) write_numbers(writer, segment);
      break;
    case Decision::Kind::kEngage:
      writer.write(message.plan);
      writer.write(message.op);
      break;
    case Decision::Kind::kFreeze:
      break;
    case Decision::Kind::kCut:
      writer.write(message.op);
      writer.write(message.resume);
      break;
    case Decision::Kind::kWithdrawn:
      writer.write_string(message.name);
      writer.write(message.rank);
      break;
    case Decision::Kind::kJoined:
    case Decision::Kind::kOver:
      writer.write(message.rank);
      break;
  }
  return within_cap(writer.take());
}

Result<Announcement> decode_announcement(BytesView bytes) {
  MessageReader reader(bytes);
  Announcement message;
  reader.read_enum(message.kind, 7);
  reader.read(message.mode);
  switch (message.kind) {
    case Announcement::Kind::kReady:
    case Announcement::Kind::kWaiting:
    case Announcement::Kind::kWithdraw:
      reader.read(message.ready);
      break;
    case Announcement::Kind::kAccept:
    case Announcement::Kind::kRefuse:
      reader.read(message.plan);
      break;
    case Announcement::Kind::kFrozen:
      reader.read(message.started);
      break;
    case Announcement::Kind::kJoin:
      break;
  }
  if (!reader.done() || bytes.size() > kMaxNamedMessage)
    return malformed("announcement", bytes.size());
  return message;
}

Result<Decision> decode_decision(BytesView bytes) {
  MessageReader reader(bytes);
  Decision message;
  reader.read_enum(message.kind, 10);
  reader.read(message.mode);
  switch (message.kind) {
    case Decision::Kind::kRun:
      read_run(reader, message);
      break;
    case Decision::Kind::kFail:
      reader.read(message.name, kMaxOperationName);
      reader.read(message.rank);
      reader.read_enum(message.cause, kFailCauseCount);
      reader.read(message.text, kMaxFailureText);
      break;
    case Decision::Kind::kStalled:
      reader.read(message.name, kMaxOperationName);
      reader.read(message.missing);
      reader.read(message.missing_more);
      break;
    case Decision::Kind::kPropose:
      reader.read(message.plan);
      read_segments(reader, message);
      break;
    case Decision::Kind::kEngage:
      reader.read(message.plan);
      reader.read(message.op);
      break;
    case Decision::Kind::kFreeze:
      break;
    case Decision::Kind::kCut:
      reader.read(message.op);
      reader.read(message.resume);
      break;
    case Decision::Kind::kWithdrawn:
      reader.read(message.name, kMaxOperationName);
      reader.read(message.rank);
      break;
    case Decision::Kind::kJoined:
    case Decision::Kind::kOver:
      reader.read(message.rank);
      break;
  }
  if (!reader.done() || bytes.size() > kMaxNamedMessage) return malformed("decision", bytes.size());
  return message;
}

}  // namespace corro::named
