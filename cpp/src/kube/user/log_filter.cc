#include "kube/user/log_filter.h"

#include <algorithm>
#include <array>

namespace corro::kube {
namespace {

constexpr std::string_view kCorroWords = "corro: ";
/// The head of an elastic job is a coordinator.
constexpr std::array<std::string_view, 2> kHeadWords = {"corro head: ", "corro coordinator: "};

bool may_become(std::string_view begun, std::string_view words) {
  return words.starts_with(begun.substr(0, words.size()));
}
bool is_of_head(std::string_view begun) {
  return std::ranges::any_of(kHeadWords,
                             [begun](std::string_view words) { return begun.starts_with(words); });
}
bool may_be_of_corro(std::string_view begun) {
  return may_become(begun, kCorroWords) ||
         std::ranges::any_of(kHeadWords,
                             [begun](std::string_view words) { return may_become(begun, words); });
}

}  // namespace

void LogFilter::pass(std::string_view piece) {
  if (piece.empty() || (kind_ == Kind::kHead && !shows_head_)) return;
  show_(kind_ == Kind::kRanks ? io::Output::kOut : io::Output::kErr, piece);
}

void LogFilter::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const bool ends = end != std::string_view::npos;
    std::string_view piece = bytes.substr(0, ends ? end + 1 : bytes.size());
    bytes.remove_prefix(piece.size());
    if (kind_ == Kind::kUnknown) {
      begun_ += piece;
      const bool is_corro = begun_.starts_with(kCorroWords);
      const bool is_head = is_of_head(begun_);
      if (!ends && may_be_of_corro(begun_) && !is_corro && !is_head) continue;
      kind_ = is_head ? Kind::kHead : is_corro ? Kind::kCorro : Kind::kRanks;
      pass(begun_);
      begun_.clear();
    } else {
      pass(piece);
    }
    if (ends) kind_ = Kind::kUnknown;
  }
}

void LogFilter::finish() {
  kind_ = Kind::kRanks;
  pass(begun_);
  begun_.clear();
  kind_ = Kind::kUnknown;
}

}  // namespace corro::kube
