#include "secure/credentials.h"

#include <fmt/format.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "wire/digest.h"
#include "wire/secret.h"

namespace corro::secure {
namespace {

constexpr std::string_view kVersion = "corro/1";
constexpr std::string_view kPurpose = "corro member key 1";
constexpr std::string_view kRanksPurpose = "corro ranks secret 1";
constexpr size_t kLongestName = 64;

/// HMAC-SHA256 of the text.
Key derive(const Key& part, const std::string& text) {
  Key key{};
  unsigned int length = 0;
  const auto* made = HMAC(EVP_sha256(), part.data(), static_cast<int>(part.size()),
                          reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                          reinterpret_cast<unsigned char*>(key.data()), &length);
  CORRO_CHECK(made != nullptr && length == key.size(), length);
  return key;
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.';
  });
}

/// Decimal, as it is written: without a sign or leading zeros.
std::optional<uint32_t> read_number(std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  if (!is_whole || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  return value;
}

/// The text up to the next blank, which is taken off `rest` with it.
std::string_view take_word(std::string_view& rest) {
  const size_t blank = rest.find(' ');
  const std::string_view word = rest.substr(0, blank);
  rest.remove_prefix(blank == std::string_view::npos ? rest.size() : blank + 1);
  return word;
}

}  // namespace

std::string encode_identity(const PodIdentity& identity) {
  return fmt::format("{} {} {} {} {}", kVersion, identity.job_uid, identity.member,
                     identity.generation, identity.part);
}

Result<PodIdentity> decode_identity(std::string_view text) {
  std::string_view rest = text;
  const Status refused(Code::kInvalidArgument, "is no identity of a job's member");
  if (take_word(rest) != kVersion) return refused;
  PodIdentity identity;
  identity.job_uid = take_word(rest);
  identity.member = take_word(rest);
  const auto generation = read_number(take_word(rest));
  const auto part = read_number(take_word(rest));
  if (!is_name(identity.job_uid) || !is_name(identity.member) || !generation || !part)
    return refused;
  identity.generation = *generation;
  identity.part = *part;
  if (encode_identity(identity) != text) return refused;
  return identity;
}

Key derive_member_key(const Key& part, std::string_view job_uid, std::string_view member) {
  return derive(part, fmt::format("{} {} {}", kPurpose, job_uid, member));
}

wire::Secret derive_ranks_secret(const Key& part, std::string_view job_uid) {
  return derive(part, fmt::format("{} {}", kRanksPurpose, job_uid));
}

Result<std::map<std::string, std::string>> make_credentials(std::string_view job_uid,
                                                            std::span<const std::string> members) {
  if (!is_name(job_uid))
    return Status(Code::kInvalidArgument, fmt::format("'{}' is no uid of a job", job_uid));
  const Key part = wire::random_secret();
  std::map<std::string, std::string> values;
  for (const std::string& member : members) {
    if (!is_name(member))
      return Status(Code::kInvalidArgument, fmt::format("'{}' is no member of a job", member));
    values[member] = wire::to_hex(derive_member_key(part, job_uid, member));
  }
  values[std::string(kHeadMember)] = wire::to_hex(part);
  return values;
}

}  // namespace corro::secure
