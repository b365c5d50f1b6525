#include "agent/messages.h"

#include <fmt/format.h>

#include <bit>
#include <concepts>
#include <limits>
#include <type_traits>

#include "base/check.h"

namespace corro::agent {
namespace {

constexpr size_t kMostItems = size_t{1} << 20U;  ///< Of a list: no command has more words.

/// The last value of each enumeration that is sent, as one byte.
template <typename T>
constexpr uint8_t kLast = 0;
template <>
constexpr uint8_t kLast<io::Output> = static_cast<uint8_t>(io::Output::kResult);
template <>
constexpr uint8_t kLast<StandardInput> = static_cast<uint8_t>(StandardInput::kSent);
template <>
constexpr uint8_t kLast<SyncedKind> = static_cast<uint8_t>(SyncedKind::kFolder);
template <>
constexpr uint8_t kLast<Code> = static_cast<uint8_t>(Code::kUnauthenticated);
template <>
constexpr uint8_t kLast<obs::Phase> = static_cast<uint8_t>(obs::kLastPhase);
template <>
constexpr uint8_t kLast<OpKind> = kOpKindCount - 1;
template <>
constexpr uint8_t kLast<DType> = kDTypeCount - 1;
template <>
constexpr uint8_t kLast<ReduceOp> = kReduceOpCount - 1;
template <>
constexpr uint8_t kLast<wire::NoticeKind> = static_cast<uint8_t>(wire::kLastNoticeKind);

/// The fields of each struct in the order of the wire: one description for writing and reading.
template <typename T, typename Like>
concept Is = std::same_as<std::remove_const_t<T>, Like>;

void fields(Is<Subject> auto& o, auto& a) {
  a(o.job), a(o.epoch), a(o.rank), a(o.member), a(o.incarnation);
}
void fields(Is<diagnosis::Frame> auto& o, auto& a) {
  a(o.file), a(o.line), a(o.function), a(o.code);
}
void fields(Is<diagnosis::Crash> auto& o, auto& a) {
  a(o.error), a(o.details), a(o.where), a(o.last_line);
}
void fields(Is<obs::OpSnapshot> auto& o, auto& a) {
  a(o.sequence), a(o.op.op_id), a(o.op.lane), a(o.op.kind), a(o.op.dtype), a(o.op.reduce_op);
  a(o.op.root), a(o.op.count), a(o.name), a(o.plan_lane), a(o.phase), a(o.waiting_for), a(o.code);
  a(o.queued_ns), a(o.started_ns), a(o.done_ns);
}
void fields(Is<obs::TracedOp> auto& o, auto& a) { a(o.op), a(o.step); }
void fields(Is<obs::ProcessTrace> auto& o, auto& a) { a(o.step), a(o.operations); }
void fields(Is<obs::StepTimes> auto& o, auto& a) { a(o.steps), a(o.step_ns), a(o.wait_ns); }
void fields(Is<obs::TrainingProgress> auto& o, auto& a) { a(o.step), a(o.of); }
void fields(Is<obs::LoggedValue> auto& o, auto& a) { a(o.name), a(o.value), a(o.step); }
void fields(Is<obs::LinkTraffic> auto& o, auto& a) { a(o.peer), a(o.sent); }
void fields(Is<obs::ProcessSnapshot> auto& o, auto& a) {
  a(o.rank), a(o.size), a(o.pid), a(o.step), a(o.operations), a(o.recent), a(o.times);
  a(o.progress), a(o.logged), a(o.steps.taken), a(o.steps.waited), a(o.links);
}
void fields(Is<obs::TableCounts> auto& o, auto& a) {
  a(o.name), a(o.rows), a(o.bytes), a(o.shards), a(o.steps), a(o.pulls), a(o.pulled_rows);
  a(o.pushes), a(o.pushed_rows), a(o.pull_p99_ns);
}
void fields(Is<diagnosis::RankEnd> auto& o, auto& a) {
  a(o.rank), a(o.pid), a(o.ended), a(o.stopped), a(o.status), a(o.out_of_memory), a(o.crash);
  a(o.flight), a(o.at), a(o.paused), a(o.tables);
}
void fields(Is<winsize> auto& o, auto& a) {
  a(o.ws_row), a(o.ws_col), a(o.ws_xpixel), a(o.ws_ypixel);
}
void fields(Is<MachineFacts> auto& o, auto& a) {
  a(o.gpus), a(o.cores), a(o.cpu_quota), a(o.memory_bytes);
}
void fields(Is<Processor> auto& o, auto& a) { a(o.id), a(o.core), a(o.package), a(o.node); }
void fields(Is<Machine> auto& o, auto& a) { a(o.facts), a(o.processors), a(o.host); }
void fields(Is<RouteTarget> auto& o, auto& a) { a(o.host), a(o.token), a(o.port), a(o.addresses); }
void fields(Is<Route> auto& o, auto& a) { a(o.host), a(o.address); }
void fields(Is<Hello> auto& o, auto& a) {
  a(o.version), a(o.corro), a(o.host), a(o.pid), a(o.slots), a(o.term), a(o.prepared);
}
void fields(Is<Started> auto& o, auto& a) { a(o.pid); }
void fields(Is<Refused> auto& o, auto& a) { a(o.code), a(o.why); }
void fields(Is<Joined> auto&, auto&) {}
void fields(Is<Output> auto& o, auto& a) { a(o.stream), a(o.bytes); }
void fields(Is<OutputEnd> auto& o, auto& a) { a(o.stream); }
void fields(Is<Ended> auto& o, auto& a) { a(o.end), a(o.clock); }
void fields(Is<Seen> auto& o, auto& a) { a(o.end), a(o.clock); }
void fields(Is<Trouble> auto& o, auto& a) { a(o.text); }
void fields(Is<Fenced> auto& o, auto& a) { a(o.left); }
void fields(Is<Start> auto& o, auto& a) {
  a(o.job), a(o.agent), a(o.secret), a(o.size), a(o.servers), a(o.program), a(o.arguments),
      a(o.directory);
  a(o.environment), a(o.adds_environment), a(o.processors), a(o.input), a(o.out_terminal),
      a(o.err_terminal);
}
void fields(Is<Signal> auto& o, auto& a) { a(o.number), a(o.ends); }
void fields(Is<Ask> auto&, auto&) {}
void fields(Is<Look> auto&, auto&) {}
void fields(Is<Credit> auto& o, auto& a) { a(o.bytes); }
void fields(Is<Resize> auto& o, auto& a) { a(o.out), a(o.err); }
void fields(Is<Fence> auto& o, auto& a) { a(o.grace); }
void fields(Is<Alive> auto&, auto&) {}
void fields(Is<Surveyed> auto& o, auto& a) {
  a(o.machine), a(o.architecture), a(o.program), a(o.missing), a(o.free_port), a(o.here);
  a(o.interfaces), a(o.host_id);
}
void fields(Is<Reached> auto& o, auto& a) { a(o.routes); }
void fields(Is<Record> auto& o, auto& a) { a(o.key), a(o.value); }
void fields(Is<Left> auto&, auto&) {}
void fields(Is<Survey> auto& o, auto& a) { a(o.program), a(o.directory), a(o.script); }
void fields(Is<Input> auto& o, auto& a) { a(o.bytes), a(o.ends); }
void fields(Is<Probe> auto& o, auto& a) { a(o.targets); }
void fields(Is<Grow> auto& o, auto& a) { a(o.host), a(o.name), a(o.shell), a(o.corro); }
void fields(Is<SyncedFile> auto& o, auto& a) {
  a(o.path), a(o.kind), a(o.link), a(o.permissions), a(o.size), a(o.content);
}
void fields(Is<Sync> auto& o, auto& a) { a(o.root), a(o.files), a(o.last); }
void fields(Is<Lacking> auto& o, auto& a) { a(o.files), a(o.bytes); }
void fields(Is<Want> auto& o, auto& a) { a(o.file), a(o.offset); }
void fields(Is<Part> auto& o, auto& a) { a(o.file), a(o.offset), a(o.bytes); }
void fields(Is<Cut> auto& o, auto& a) { a(o.host), a(o.why); }
void fields(Is<Forward> auto& o, auto& a) { a(o.host), a(o.message); }
void fields(Is<HostFacts> auto& o, auto& a) {
  a(o.kernel), a(o.shared_bytes), a(o.shared_free), a(o.python), a(o.torch);
}
void fields(Is<Speed> auto& o, auto& a) { a(o.failure), a(o.round_trip), a(o.bytes), a(o.span); }
void fields(Is<Examine> auto& o, auto& a) { a(o.python), a(o.key); }
void fields(Is<Examined> auto& o, auto& a) { a(o.facts); }
void fields(Is<ReadClock> auto&, auto&) {}
void fields(Is<Clock> auto& o, auto& a) { a(o.since_1970); }
void fields(Is<Measure> auto& o, auto& a) { a(o.target), a(o.key), a(o.span), a(o.patience); }
void fields(Is<Measured> auto& o, auto& a) { a(o.host), a(o.speed); }
void fields(Is<Call> auto& o, auto& a) { a(o.bytes); }
void fields(Is<Stacks> auto&, auto&) {}
void fields(Is<Stack> auto& o, auto& a) { a(o.text), a(o.missing); }
void fields(Is<Trace> auto& o, auto& a) { a(o.steps); }
void fields(Is<Traced> auto& o, auto& a) { a(o.process), a(o.clock); }
void fields(Is<Member> auto& o, auto& a) { a(o.rank), a(o.uuid), a(o.incarnation), a(o.host); }
void fields(Is<Members> auto& o, auto& a) { a(o.hosts), a(o.members), a(o.last); }
void fields(Is<Release> auto&, auto&) {}
void fields(Is<Enlist> auto& o, auto& a) {
  a(o.version), a(o.corro), a(o.program), a(o.command), a(o.directory);
}
void fields(Is<Reach> auto& o, auto& a) { a(o.host); }
void fields(Is<Attend> auto& o, auto& a) { a(o.session); }
void fields(Is<Session> auto& o, auto& a) { a(o.session); }
void fields(Is<Ready> auto&, auto&) {}
void fields(Is<Leave> auto&, auto&) {}
void fields(Is<Propose> auto& o, auto& a) { a(o.status), a(o.saw_loss); }
void fields(Is<Proceed> auto&, auto&) {}
void fields(Is<Dismiss> auto& o, auto& a) { a(o.status), a(o.why); }
void fields(Is<Reset> auto&, auto&) {}
void fields(Is<HostLost> auto& o, auto& a) { a(o.host); }
void fields(Is<Meeting> auto& o, auto& a) { a(o.secret); }
void fields(Is<Prepare> auto& o, auto& a) { a(o.why), a(o.at_once); }
void fields(Is<ReadyForEpoch> auto& o, auto& a) { a(o.epoch), a(o.steps), a(o.lost); }
void fields(Is<Leaving> auto& /*o*/, auto& /*a*/) {}
void fields(Is<Lead> auto& o, auto& a) { a(o.term); }
void fields(Is<wire::Notice> auto& o, auto& a) { a(o.kind), a(o.step), a(o.text); }
void fields(Is<Notice> auto& o, auto& a) { a(o.said), a(o.age); }

class FieldWriter {
 public:
  explicit FieldWriter(ByteWriter& out) : out_(out) {}

  template <std::integral T>
  void operator()(const T& value) {
    out_.write(value);
  }
  void operator()(const bool& value) { out_.write(static_cast<uint8_t>(value)); }
  template <typename T>
    requires std::is_enum_v<T>
  void operator()(const T& value) {
    out_.write(static_cast<uint8_t>(value));
  }
  void operator()(const double& value) { out_.write(std::bit_cast<uint64_t>(value)); }
  void operator()(const Bytes& bytes) {
    out_.write(static_cast<uint32_t>(bytes.size()));
    out_.write_bytes(bytes);
  }
  void operator()(const Duration& value) { out_.write(static_cast<int64_t>(value.count())); }
  void operator()(const std::string& text) { out_.write_string(text); }
  /// Of its buckets those that have something.
  void operator()(const DurationHistogram& histogram) {
    const auto empty = std::ranges::count(histogram.counts, 0U);
    (*this)(histogram.sum_ns);
    (*this)(static_cast<uint8_t>(histogram.counts.size() - static_cast<size_t>(empty)));
    for (size_t i = 0; i < histogram.counts.size(); ++i) {
      if (histogram.counts[i] > 0) (*this)(static_cast<uint8_t>(i)), (*this)(histogram.counts[i]);
    }
  }
  template <size_t N>
  void operator()(const std::array<std::byte, N>& bytes) {
    out_.write_bytes(bytes);
  }
  template <typename T>
  void operator()(const std::vector<T>& items) {
    out_.write(static_cast<uint32_t>(items.size()));
    for (const T& item : items) (*this)(item);
  }
  void operator()(const Variables& variables) {
    out_.write(static_cast<uint32_t>(variables.size()));
    for (const auto& [name, value] : variables) (*this)(name), (*this)(value);
  }
  template <typename T>
  void operator()(const std::optional<T>& value) {
    (*this)(value.has_value());
    if (value) (*this)(*value);
  }
  template <typename T>
    requires std::is_class_v<T>
  void operator()(const T& value) {
    fields(value, *this);
  }

 private:
  ByteWriter& out_;
};

/// After the first value that is not valid, ok() is false and nothing more is taken.
class FieldReader {
 public:
  explicit FieldReader(BytesView bytes) : in_(bytes) {}
  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] bool done() const { return ok_ && in_.done(); }

  template <std::integral T>
  void operator()(T& value) {
    take(in_.read<T>(), value);
  }
  void operator()(bool& value) {
    uint8_t byte = 0;
    (*this)(byte);
    ok_ = ok_ && byte <= 1;
    value = byte == 1;
  }
  template <typename T>
    requires std::is_enum_v<T>
  void operator()(T& value) {
    uint8_t byte = 0;
    (*this)(byte);
    ok_ = ok_ && byte <= kLast<T>;
    if (ok_) value = static_cast<T>(byte);
  }
  void operator()(double& value) {
    uint64_t bits = 0;
    (*this)(bits);
    value = std::bit_cast<double>(bits);
  }
  void operator()(Bytes& bytes) {
    uint32_t size = 0;
    (*this)(size);
    const auto view = in_.read_bytes(ok_ ? size : 0);
    ok_ = ok_ && view.has_value();
    if (ok_) bytes.assign(view->begin(), view->end());
  }
  void operator()(Duration& value) {
    int64_t count = 0;
    (*this)(count);
    value = Duration(count);
  }
  /// In order, each once: so there is one way to write them.
  void operator()(DurationHistogram& histogram) {
    (*this)(histogram.sum_ns);
    uint8_t left = 0;
    (*this)(left);
    for (size_t next = 0; ok_ && left > 0; --left) {
      uint8_t bucket = 0;
      (*this)(bucket);
      ok_ = ok_ && bucket >= next && bucket < kDurationBuckets;
      if (!ok_) return;
      (*this)(histogram.counts[bucket]);
      ok_ = ok_ && histogram.counts[bucket] > 0;
      next = size_t{bucket} + 1;
    }
  }
  void operator()(std::string& text) { take(in_.read_string(kMaxMessageBytes), text); }
  template <size_t N>
  void operator()(std::array<std::byte, N>& bytes) {
    const auto view = in_.read_bytes(N);
    ok_ = ok_ && view.has_value();
    if (ok_) std::ranges::copy(*view, bytes.begin());
  }
  template <typename T>
  void operator()(std::vector<T>& items) {
    for (uint32_t left = count(); ok_ && left > 0; --left) (*this)(items.emplace_back());
  }
  /// No more than a process can have.
  void operator()(std::vector<obs::LoggedValue>& values) {
    const uint32_t items = count();
    ok_ = ok_ && items <= obs::kMostLogged;
    for (uint32_t left = items; ok_ && left > 0; --left) {
      obs::LoggedValue& value = values.emplace_back();
      (*this)(value);
      ok_ = ok_ && !value.name.empty() && value.name.size() <= obs::kLoggedNameBytes;
    }
  }
  void operator()(std::vector<obs::LinkTraffic>& links) {
    const uint32_t items = count();
    ok_ = ok_ && items <= obs::kMostLinks;
    for (uint32_t left = items; ok_ && left > 0; --left) (*this)(links.emplace_back());
  }
  /// No more than a server shows.
  void operator()(std::vector<obs::TableCounts>& tables) {
    const uint32_t items = count();
    ok_ = ok_ && items <= obs::kMostShownTables;
    for (uint32_t left = items; ok_ && left > 0; --left) {
      obs::TableCounts& table = tables.emplace_back();
      (*this)(table);
      ok_ = ok_ && !table.name.empty();
    }
  }
  void operator()(Variables& variables) {
    for (uint32_t left = count(); ok_ && left > 0; --left) {
      std::string name;
      (*this)(name);
      // In order, each once: so there is one way to write them.
      ok_ = ok_ && (variables.empty() || variables.rbegin()->first < name);
      (*this)(variables[name]);
    }
  }
  template <typename T>
  void operator()(std::optional<T>& value) {
    bool has = false;
    (*this)(has);
    value.reset();
    if (ok_ && has) (*this)(value.emplace());
  }
  template <typename T>
    requires std::is_class_v<T>
  void operator()(T& value) {
    fields(value, *this);
  }

 private:
  template <typename T>
  void take(std::optional<T> read, T& value) {
    ok_ = ok_ && read.has_value();
    if (ok_) value = std::move(*read);
  }
  uint32_t count() {
    uint32_t items = 0;
    (*this)(items);
    ok_ = ok_ && items <= kMostItems;
    return items;
  }

  ByteReader in_;
  bool ok_ = true;
};

template <size_t I = 0>
bool read_body(size_t kind, MessageBody& body, FieldReader& reader) {
  if constexpr (I == std::variant_size_v<MessageBody>) {
    return false;
  } else {
    if (kind != I) return read_body<I + 1>(kind, body, reader);
    reader(body.emplace<I>());
    return reader.done();
  }
}

}  // namespace

Bytes encode_message(const Message& message) {
  ByteWriter body;
  FieldWriter writer(body);
  body.write(static_cast<uint8_t>(message.body.index() + 1));
  writer(message.about);
  std::visit(writer, message.body);
  CORRO_CHECK(body.bytes().size() <= kMaxMessageBytes, body.bytes().size());
  ByteWriter whole;
  whole.write(static_cast<uint32_t>(body.bytes().size()));
  whole.write_bytes(body.bytes());
  return whole.take();
}

Result<Message> decode_message(BytesView bytes) {
  FieldReader reader(bytes);
  uint8_t kind = 0;
  Message message;
  reader(kind);
  reader(message.about);
  if (!reader.ok() || kind == 0 || !read_body(kind - size_t{1}, message.body, reader)) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("message of kind {} is not valid: do both run the same corro?", kind));
  }
  return message;
}

}  // namespace corro::agent
