#include "named/named_join.h"

#include <cctype>

#include <fmt/format.h>

namespace corro::named {

std::string describe_unsupported(OpKind kind, const std::string& name, int32_t absent) {
  std::string verb(name_of(kind));
  verb[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(verb[0])));
  return fmt::format(
      "{} is not supported with Join at this time. Rank {} has joined without named operation "
      "\"{}\"; only allreduce goes on without it",
      verb, absent, name);
}

void JoinRound::add(size_t rank) {
  joined_[rank] = true;
  ++count_;
  last_ = rank;
}

}  // namespace corro::named
