#include "agent/synced_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "io/fd.h"

namespace corro::agent {

Result<SyncedFile> describe_file(const std::string& root, const std::string& path) {
  const std::string whole = root + "/" + path;
  SyncedFile file{.path = path};
  struct stat facts{};
  if (lstat(whole.c_str(), &facts) != 0) return status_from_errno(whole, errno);
  if (S_ISLNK(facts.st_mode)) {
    std::error_code error;
    file.link = std::filesystem::read_symlink(whole, error).string();
    return file;
  }
  if (!S_ISREG(facts.st_mode)) return Status(Code::kFailedPrecondition, whole + ": no file");
  const io::Fd fd(open(whole.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) return status_from_errno(whole, errno);
  file.executable = (facts.st_mode & S_IXUSR) != 0;
  file.size = static_cast<uint64_t>(facts.st_size);
  auto content = wire::digest_of_file(fd.get());
  if (!content.ok()) return content.status().with_context(whole);
  file.content = *content;
  return file;
}

}  // namespace corro::agent
