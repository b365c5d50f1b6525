#include "obs/timeline_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "obs/characters.h"

namespace corro::obs {
namespace {

using Kind = TimelineEvent::Kind;

/// The process of rank r's lanes has this number and r, and r places before all tensors.
constexpr int kLanesOfRanks = 1 << 30;
constexpr int kFirstPlace = -(1 << 20);
/// What overlaps even more is shown in the last row.
constexpr size_t kMostRows = 64;

double microseconds(uint64_t time_ns, int64_t offset_ns) {
  return static_cast<double>(static_cast<int64_t>(time_ns) + offset_ns) / 1e3;
}

/// "ALLREDUCE".
std::string slice_of(OpKind kind) {
  std::string name(name_of(kind));
  std::ranges::transform(name, name.begin(),
                         [](char c) { return static_cast<char>(c - 'a' + 'A'); });
  return name;
}

std::string size_of_event(const TimelineEvent& event) {
  return fmt::format(R"("dtype":"{}","count":{})", name_of(event.dtype), event.count);
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string json = "\"";
  for (size_t i = 0; i < text.size();) {
    const size_t length = character_at(text, i);
    const char c = text[i];
    if (length == 0) {
      json += '?';
    } else if (c == '"' || c == '\\') {
      json += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      json += fmt::format("\\u{:04x}", c);
    } else {
      json += text.substr(i, length);
    }
    i += std::max<size_t>(length, 1);
  }
  return json + '"';
}

Status TimelineText::add(int32_t rank, BytesView events, int64_t offset_ns) {
  ByteReader reader(events);
  while (reader.remaining() > 0) {
    const auto event = read_timeline_event(reader);
    if (!event) {
      return {Code::kInvalidArgument,
              fmt::format("timeline: rank {} sent no events", rank),
              {.rank = rank}};
    }
    add(rank, *event, offset_ns);
  }
  return {};
}

void TimelineText::add(int32_t rank, const TimelineEvent& event, int64_t offset_ns) {
  const double at = microseconds(event.time_ns, offset_ns);
  const std::pair key(rank, event.span);
  const auto found = open_.find(key);
  switch (event.kind) {
    case Kind::kCycle:
      know(0, rank);
      text_ += fmt::format(
          ",\n{{\"name\":\"CYCLE_START\",\"ph\":\"i\",\"s\":\"t\",\"pid\":0,\"tid\":{},\"ts\":{:."
          "3f}}}",
          rank, at);
      return;
    case Kind::kNegotiate:
    case Kind::kBegin: {
      const std::string slice = slice_of(*event.op);
      Open open{.process = process_of(event.name.empty() ? slice : event.name),
                .slice = slice,
                .what = fmt::format("{{{}}}", size_of_event(event))};
      know(open.process, rank);
      begin(rank, open, event.kind == Kind::kNegotiate ? "NEGOTIATE_" : "", at);
      open_.insert_or_assign(key, std::move(open));
      return;
    }
    case Kind::kAgreed:
      if (found == open_.end()) return;
      end(rank, found->second.process, Code::kOk, at);
      begin(rank, found->second, "", at);
      return;
    case Kind::kEnd:
      if (found == open_.end()) return;
      end(rank, found->second.process, event.code, at);
      open_.erase(found);
      return;
    case Kind::kFiring:
      return add_firing(rank, event, offset_ns);
  }
}

void TimelineText::add_firing(int32_t rank, const TimelineEvent& firing, int64_t offset_ns) {
  const int row = row_of(rank, firing);
  const double began = microseconds(firing.began_ns, offset_ns);
  const double took = std::max(microseconds(firing.time_ns, offset_ns) - began, 0.0);
  std::string what = fmt::format(R"("micro_batch":{})", firing.span);
  if (firing.op) what += "," + size_of_event(firing);
  if (firing.code != Code::kOk) what += fmt::format(R"(,"error":"{}")", code_name(firing.code));
  text_ += fmt::format(
      ",\n{{\"name\":{},\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},"
      "\"args\":{{{}}}}}",
      json_string(firing.name), kLanesOfRanks + rank, row, began, took, what);
}

int TimelineText::row_of(int32_t rank, const TimelineEvent& firing) {
  if (lanes_.size() >= kMostNames) lanes_.clear();
  std::vector<Row>& rows = lanes_[{rank, firing.lane}];
  auto row = std::ranges::find_if(
      rows, [&firing](const Row& one) { return one.until_ns <= firing.began_ns; });
  if (row == rows.end() && rows.size() == kMostRows) --row;
  if (row == rows.end()) {
    const int process = kLanesOfRanks + rank;
    int& threads = threads_[rank];
    if (threads == 0)
      write_process(process, fmt::format("lanes of rank {}", rank), kFirstPlace + rank);
    row = rows.insert(row, {.thread = threads++});
    const std::string number = rows.size() == 1 ? "" : fmt::format(" ({})", rows.size());
    write_thread(process, row->thread, firing.lane + number);
  }
  row->until_ns = std::max(row->until_ns, firing.time_ns);
  return row->thread;
}

void TimelineText::begin(int32_t rank, const Open& open, std::string_view prefix, double at) {
  text_ += fmt::format(
      ",\n{{\"name\":\"{}{}\",\"ph\":\"B\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"args\":{}}}",
      prefix, open.slice, open.process, rank, at, open.what);
}

void TimelineText::end(int32_t rank, int process, Code code, double at) {
  const std::string why =
      code == Code::kOk ? "" : fmt::format(R"(,"args":{{"error":"{}"}})", code_name(code));
  text_ += fmt::format(",\n{{\"ph\":\"E\",\"pid\":{},\"tid\":{},\"ts\":{:.3f}{}}}", process, rank,
                       at, why);
}

void TimelineText::note(int32_t rank, std::string_view name, uint64_t time_ns, double value) {
  know(0, rank);
  text_ += fmt::format(
      ",\n{{\"name\":{},\"ph\":\"i\",\"s\":\"t\",\"pid\":0,\"tid\":{},\"ts\":{:.3f},\"args\":{{"
      "\"value\":{}}}}}",
      json_string(name), rank, microseconds(time_ns, 0), value);
}

int TimelineText::process_of(const std::string& name) {
  if (const auto found = by_name_.find(name); found != by_name_.end()) return found->second;
  if (by_name_.size() >= kMostNames) {
    by_name_.clear();
    std::erase_if(known_, [](const auto& thread) { return thread.first > 0; });
  }
  by_name_[name] = ++processes_;
  write_process(processes_, name, processes_);
  return processes_;
}

void TimelineText::write_process(int process, const std::string& name, int place) {
  text_ += fmt::format(
      ",\n{{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":{0},\"args\":{{\"name\":{1}}}}}"
      ",\n{{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":{0},\"args\":{{\"sort_index\":{2}}"
      "}}}",
      process, json_string(name), place);
}

void TimelineText::write_thread(int process, int thread, const std::string& name) {
  text_ += fmt::format(
      ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{}}}}}",
      process, thread, json_string(name));
}

void TimelineText::know(int process, int32_t rank) {
  if (!known_.emplace(process, rank).second) return;
  if (process == 0 && !std::exchange(names_ranks_, true)) write_process(0, "ranks", 0);
  write_thread(process, rank, fmt::format("rank {}", rank));
}

}  // namespace corro::obs
