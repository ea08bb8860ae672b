#include "store/disk_io.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace hotrow::store {

int IoEngine::sync(int descriptor) {
#if defined(__APPLE__)
  return fcntl(descriptor, F_FULLFSYNC) == 0 ? 0 : errno;
#else
  return fdatasync(descriptor) == 0 ? 0 : errno;
#endif
}

int IoEngine::grow(int descriptor, std::uint64_t from, std::uint64_t to) {
#if defined(__linux__)
  int failed;
  do {
    failed = fallocate(descriptor, 0, static_cast<off_t>(from), static_cast<off_t>(to - from)) == 0 ? 0 : errno;
  } while (failed == EINTR);
  if (failed == 0) return 0;
  if (failed != EOPNOTSUPP && failed != ENOSYS) {
    [[maybe_unused]] const int cut = ftruncate(descriptor, static_cast<off_t>(from));  // what it had allocated before
    return failed;
  }
#else
  static_cast<void>(from);
#endif
  return ftruncate(descriptor, static_cast<off_t>(to)) == 0 ? 0 : errno;
}

}  // namespace hotrow::store
