#include "store/staging.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "store/disk_format.h"

namespace hotrow::store {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw DiskError("staging file " + path + ": cannot be " + what + ": " + std::strerror(errno));
}

std::byte* mapped(const std::string& path, int file, std::size_t bytes) {
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) fail(path, "mapped");
  return static_cast<std::byte*>(memory);
}

}  // namespace

Staging::Staging(std::string path, std::size_t bytes) : path_(std::move(path)), bytes_(bytes) {
  if (path_.empty()) {
    data_ = mapped("memory", -1, bytes_);
    return;
  }
  unlink(path_.c_str());
  const int file = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) fail(path_, "made");
  // Blocks now: without them a full file system would end the process when it writes to the memory.
  const int error = posix_fallocate(file, 0, static_cast<off_t>(bytes_));
  if (error != 0) {
    close(file);
    unlink(path_.c_str());
    errno = error;
    fail(path_, "given its size");
  }
  data_ = mapped(path_, file, bytes_);
  close(file);
}

Staging Staging::found(const std::string& path) {
  Staging memory;
  memory.path_ = path;
  if (path.empty()) return memory;
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) {
    if (errno == ENOENT) return memory;
    fail(path, "opened");
  }
  struct stat about{};
  if (fstat(file, &about) == 0 && S_ISREG(about.st_mode) && about.st_uid == geteuid() && about.st_size > 0) {
    memory.bytes_ = static_cast<std::size_t>(about.st_size);
    memory.data_ = mapped(path, file, memory.bytes_);
  }
  close(file);
  return memory;
}

Staging::Staging(Staging&& other) noexcept { *this = std::move(other); }

Staging& Staging::operator=(Staging&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Staging::~Staging() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

void Staging::remove() const {
  if (!path_.empty()) unlink(path_.c_str());
}

}  // namespace hotrow::store
