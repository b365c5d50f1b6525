#include "table/service/questions.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace corro::table {
namespace {

constexpr size_t kKindAt = 4;
constexpr size_t kRequestAt = 8;

bool is_open(const Bytes& message) {
  return message[kKindAt] == static_cast<std::byte>(MessageKind::kOpen);
}

Bytes open_message(uint16_t table, BytesView body) {
  return encode_message({.kind = MessageKind::kOpen, .table = table}, body);
}

}  // namespace

Questions::Question Questions::question(Bytes message, Answer answer) {
  const uint32_t request = ++last_request_;
  std::memcpy(message.data() + kRequestAt, &request, sizeof request);
  return {request, std::move(message), std::move(answer)};
}

void Questions::open(uint16_t table, const Bytes& body, Answer answer) {
  std::erase_if(open_, [table](const OpenTable& one) { return one.table == table; });
  open_.push_back({table, body});
  ask(open_message(table, body), std::move(answer));
}

void Questions::ask(Bytes message, Answer answer) {
  asked_.push_back(question(std::move(message), std::move(answer)));
}

void Questions::tell_lost(uint32_t server) {
  lost_.push_back(server);
  ask(encode_lost(0, server), nullptr);
}

void Questions::forget() {
  std::deque<Question> kept;
  size_t sent = 0;
  for (size_t i = 0; i < asked_.size(); ++i) {
    if (!is_open(asked_[i].message)) continue;
    if (i < sent_) ++sent;
    kept.push_back({asked_[i].request, std::move(asked_[i].message), nullptr});
  }
  asked_ = std::move(kept);
  sent_ = sent;
  // That one is for all ranks. The server may have heard it.
  for (const uint32_t server : std::exchange(lost_, {})) tell_lost(server);
}

void Questions::begin() {
  sent_ = 0;
  std::deque<Question> again;
  for (const OpenTable& table : open_) {
    const auto is_asked = [&](const Question& asked) {
      return is_open(asked.message) &&
             std::ranges::equal(std::span(asked.message).subspan(kHeaderBytes), table.body);
    };
    if (std::ranges::any_of(asked_, is_asked)) continue;
    again.push_back(question(open_message(table.table, table.body), nullptr));
  }
  std::ranges::move(asked_, std::back_inserter(again));
  asked_ = std::move(again);
}

bool Questions::take(const Header& header, BytesView body) {
  const auto sent =
      std::ranges::subrange(asked_.begin(), asked_.begin() + static_cast<ptrdiff_t>(sent_));
  const auto found = std::ranges::find(sent, header.request, &Question::request);
  if (found == sent.end()) return false;
  const Answer answer = std::move(found->answer);
  asked_.erase(found);
  --sent_;
  const Status status = header.kind == MessageKind::kError ? decode_error(body) : Status();
  if (answer) answer(status, header.kind, body);
  return true;
}

}  // namespace corro::table
