#include "pod/install.h"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "io/fd.h"

namespace corro::pod {
namespace {

constexpr mode_t kExecutable = 0755;

Status copy_program(const std::string& to) {
  const io::Fd from(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  if (!from.valid()) return status_from_errno("/proc/self/exe", errno);
  struct stat info{};
  if (fstat(from.get(), &info) != 0) return status_from_errno("/proc/self/exe", errno);
  const io::Fd file(open(to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kExecutable));
  if (!file.valid()) return status_from_errno(to, errno);
  for (off_t left = info.st_size; left > 0;) {
    const ssize_t count = sendfile(file.get(), from.get(), nullptr, static_cast<size_t>(left));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return status_from_errno(to, count == 0 ? EIO : errno);
    left -= count;
  }
  // Whatever the mask is: other users of the pod run it.
  if (fchmod(file.get(), kExecutable) != 0) return status_from_errno(to, errno);
  return {};
}

Status put_in_place(const std::string& from, const std::string& to) {
  return rename(from.c_str(), to.c_str()) == 0 ? Status() : status_from_errno(to, errno);
}

}  // namespace

Status install_program(const std::string& folder) {
  const std::string copy = folder + "/.corro-new", link = folder + "/.ssh-new";
  CORRO_TRY(copy_program(copy));
  CORRO_TRY(put_in_place(copy, folder + "/corro"));
  (void)unlink(link.c_str());
  if (symlink("corro", link.c_str()) != 0) return status_from_errno(link, errno);
  return put_in_place(link, folder + "/ssh");
}

}  // namespace corro::pod
