#include "secure/token.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "io/fd.h"
#include "wire/secret.h"

namespace corro::secure {
namespace {

Result<Key> read_mounted(const std::string& path) {
  const io::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info{};
  struct statfs system{};
  struct statvfs mount{};
  if (!file.valid() || fstat(file.get(), &info) != 0 || fstatfs(file.get(), &system) != 0 ||
      fstatvfs(file.get(), &mount) != 0)
    return status_from_errno(path, errno);
  const Status trusted = check_token({.is_regular = S_ISREG(info.st_mode),
                                      .is_of_root = info.st_uid == 0,
                                      .others_may_write = (info.st_mode & 022U) != 0,
                                      .is_in_memory = system.f_type == TMPFS_MAGIC,
                                      .is_read_only = (mount.f_flag & ST_RDONLY) != 0});
  if (!trusted.ok()) return trusted.with_context(path);
  std::array<char, 256> text{};
  const ssize_t got = ::read(file.get(), text.data(), text.size());
  if (got < 0) return status_from_errno(path, errno);
  auto key = wire::parse_secret({text.data(), static_cast<size_t>(got)});
  return key.ok() ? key : key.status().with_context(path);
}

}  // namespace

Status check_token(const TokenFile& file) {
  const auto refuse = [](const char* why) { return Status(Code::kPermissionDenied, why); };
  if (!file.is_regular) return refuse("is no regular file");
  if (!file.is_of_root) return refuse("does not belong to root");
  if (file.others_may_write) return refuse("others than root may write it");
  if (!file.is_in_memory) return refuse("is not on a file system of memory");
  if (!file.is_read_only) return refuse("is on a file system that is not mounted read-only");
  return {};
}

Result<Key> read_token(const std::string& folder, uint32_t part) {
  const std::string path = part == 0 ? folder + "/key" : fmt::format("{}/key-{}", folder, part);
  return folder == kTokenFolder ? read_mounted(path) : wire::read_secret_file(path);
}

}  // namespace corro::secure
