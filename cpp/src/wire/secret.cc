#include "wire/secret.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>

#include "io/fd.h"
#include "io/random.h"
#include "wire/digest.h"

namespace corro::wire {
namespace {

std::optional<unsigned> digit_value(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A' + 10);
  return std::nullopt;
}

}  // namespace

Secret random_secret() {
  Secret secret;
  io::fill_random(secret);
  return secret;
}

Result<Secret> parse_secret(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t first = text.find_first_not_of(kBlank);
  if (first != std::string_view::npos)
    text = text.substr(first, text.find_last_not_of(kBlank) + 1 - first);
  const Status refused(Code::kInvalidArgument,
                       "expected 64 hexadecimal digits (openssl rand -hex 32)");
  Secret secret;
  if (text.size() != 2 * secret.size()) return refused;
  for (size_t i = 0; i < secret.size(); ++i) {
    const auto high = digit_value(text[2 * i]);
    const auto low = digit_value(text[2 * i + 1]);
    if (!high || !low) return refused;
    secret[i] = static_cast<std::byte>(*high << 4U | *low);
  }
  return secret;
}

namespace {

Result<Secret> read_secret(const std::string& path, const std::string& context) {
  const io::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return status_from_errno(context, errno);
  struct stat info{};
  if (fstat(file.get(), &info) != 0) return status_from_errno(context, errno);
  if (!S_ISREG(info.st_mode))
    return Status(Code::kPermissionDenied, context + ": is no regular file");
  if (info.st_uid != geteuid()) {
    return Status(Code::kPermissionDenied, fmt::format("{}: belongs to user {}, not to {}", context,
                                                       info.st_uid, geteuid()));
  }
  if ((info.st_mode & 077U) != 0)
    return Status(Code::kPermissionDenied, context + ": others may read it: chmod 600");
  std::array<char, 256> text{};
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  if (got < 0) return status_from_errno(context, errno);
  auto secret = parse_secret({text.data(), static_cast<size_t>(got)});
  if (!secret.ok()) return secret.status().with_context(context);
  return secret;
}

Status make_folders(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string folder = path.substr(0, slash);
    if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST && access(folder.c_str(), X_OK) != 0)
      return status_from_errno("create " + folder, errno);
  }
  return {};
}

/// A file that is there before it has this name, so that nobody reads half of one.
Status make_user_secret(const std::string& path) {
  CORRO_TRY(make_folders(path));
  const std::string temporary = path + "-" + random_hex(12);
  const io::Fd file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return status_from_errno("create " + temporary, errno);
  const std::string text = to_hex(random_secret()) + "\n";
  const bool written =
      ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      fsync(file.get()) == 0;
  // A hard link never replaces what another process has made meanwhile.
  const bool named = written && (link(temporary.c_str(), path.c_str()) == 0 || errno == EEXIST);
  const int error = errno;
  unlink(temporary.c_str());
  return named ? Status() : status_from_errno("create " + path, error);
}

}  // namespace

Result<Secret> read_secret_file(const std::string& path) {
  return read_secret(path, "CORRO_SECRET_FILE=" + path);
}

Result<Secret> user_secret(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) {
    const Status made = make_user_secret(path);
    if (!made.ok()) {
      return Status(Code::kFailedPrecondition,
                    fmt::format("ranks on several hosts need a secret: {}; set CORRO_SECRET_FILE "
                                "to a file (chmod 600) with the same 64 hexadecimal digits for "
                                "every rank",
                                made.message()));
    }
  }
  return read_secret(path, path);
}

}  // namespace corro::wire
