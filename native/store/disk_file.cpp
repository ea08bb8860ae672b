#include "store/disk_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#if defined(__linux__)
#include <sys/vfs.h>
#endif
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "store/held_locks.h"

namespace hotrow::store {
namespace {

#if defined(O_DIRECT)
constexpr int kDirect = O_DIRECT;
#else
constexpr int kDirect = 0;  // macOS: the benchmark says "buffered"
#endif

constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC;

// A file system may take the flag and then refuse to read, as some network file systems do.
int open_direct(const std::string& path) {
  if (kDirect == 0) return -1;
  const int file = ::open(path.c_str(), kFlags | kDirect, 0600);
  if (file < 0) return -1;
  const AlignedBuffer page(kPage);
  if (pread(file, page.data(), kPage, 0) >= 0) return file;
  close(file);
  return -1;
}

constexpr auto kLateWritesMost = std::chrono::seconds(30);
constexpr auto kLateWritesPause = std::chrono::milliseconds(1);

#if defined(__linux__)
// Network file systems turn a flock into a lock on the bytes of the file.
bool locks_of_server(int file) {
  struct statfs found;
  if (fstatfs(file, &found) != 0) return false;
  constexpr std::uint32_t kNfs = 0x6969, kCifs = 0xFF534D42, kSmb2 = 0xFE534D42;
  const auto type = static_cast<std::uint32_t>(found.f_type);
  return type == kNfs || type == kCifs || type == kSmb2;
}
#endif

// Waits for the writes of a process that has ended: io_uring goes on with those that the kernel has taken, after the
// process is gone and its flock with it. They hold the open file, and with it this lock. False: they did not end.
bool lock_against_late_writes(int file) {
#if defined(__linux__) && defined(F_OFD_SETLK)
  if (locks_of_server(file)) return true;  // there the lock of this process itself would be in the way
  struct flock whole = {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  const auto until = std::chrono::steady_clock::now() + kLateWritesMost;
  while (fcntl(file, F_OFD_SETLK, &whole) != 0) {
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) return true;  // this file system has no such locks
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(kLateWritesPause);
  }
#endif
  return true;
}

bool full(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

std::string free_text(const std::string& path) {
  struct statvfs found;
  const std::size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (statvfs(directory.c_str(), &found) != 0) return "";
  return ", " + std::to_string(found.f_bavail * found.f_frsize) + " bytes are free";
}

}  // namespace

DiskFile::DiskFile(const std::string& path, bool direct, IoChoice io, int depth, const WrapEngine& wrap) : path_(path) {
  // The lock of the process is on a descriptor of its own, which ends with it. A forked child closes its copy.
  lock_ = ::open(path.c_str(), kFlags, 0600);
  if (lock_ < 0) fail("cannot be opened", errno);
  bool made = false;  // by us: a file that is refused is not left behind
  try {
    if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) fail("cannot be locked", errno);
      throw DiskLockedError("disk file " + path +
                            ": in use by another tier; end the process that has it, or give this table another path");
    }
    struct stat found;
    if (fstat(lock_, &found) != 0) fail("cannot be looked at", errno);
    if (!S_ISREG(found.st_mode)) throw DiskError("disk file " + path + ": is not a plain file: give another path");
    made = found.st_size == 0;
    if (direct) file_ = open_direct(path);
    direct_ = file_ >= 0;
    if (file_ < 0) file_ = ::open(path.c_str(), kFlags, 0600);
    if (file_ < 0) fail("cannot be opened", errno);
    if (!lock_against_late_writes(file_))
      throw DiskLockedError("disk file " + path + ": writes of a process that ended are still under way after 30 s: " +
                            "look at the disk, and try again");
    if (io != IoChoice::threads) engine_ = make_uring(file_, depth);
    if (!engine_ && io == IoChoice::uring)
      throw DiskError("io=uring: the kernel refuses io_uring to this process: use io=auto or io=threads");
    if (!engine_) engine_ = make_thread_pool(file_, depth);
    if (wrap) engine_ = wrap(std::move(engine_));
  } catch (...) {
    if (made) unlink(path.c_str());
    if (file_ >= 0) close(file_);
    close(lock_);
    throw;
  }
  remember_lock(lock_);
  remember_lock(file_);
}

DiskFile::~DiskFile() {
  engine_.reset();
  forget_lock(file_);
  close(file_);
  forget_lock(lock_);
  close(lock_);
}

std::uint64_t DiskFile::bytes() const {
  struct stat now;
  return fstat(file_, &now) == 0 ? static_cast<std::uint64_t>(now.st_size) : 0;
}

void DiskFile::run(IoKind kind, std::span<IoRequest> requests, const std::function<void(IoRequest&)>& finished) {
  std::uint64_t bytes = 0;
  for (const IoRequest& request : requests) bytes += request.bytes;
  (kind == IoKind::read ? reads_ : writes_) += requests.size();
  (kind == IoKind::read ? read_bytes_ : write_bytes_) += bytes;
  engine_->run(kind, requests, finished);
}

void DiskFile::read(std::span<IoRequest> requests) {
  run(IoKind::read, requests, [](IoRequest&) {});
  for (const IoRequest& request : requests) check_done(request, "cannot be read");
}

void DiskFile::write(std::span<IoRequest> requests) {
  run(IoKind::write, requests, [](IoRequest&) {});
  for (const IoRequest& request : requests) check_done(request, "cannot be written");
}

void DiskFile::check_done(const IoRequest& request, const char* what) const {
  if (request.error != 0) fail(std::string(what) + " at byte " + std::to_string(request.offset), request.error);
}

void DiskFile::sync() {
  check_flushed();
  ++syncs_;
  if (const int failed = engine_->sync(file_); failed != 0) {
    lost_ = failed;
    check_flushed();
  }
}

// The system may have dropped what it could not write, and a second flush would not tell.
void DiskFile::check_flushed() const {
  if (const int failed = lost_; failed != 0)
    fail(
        "could not be flushed and takes no more rows; what was written since the last flush may be lost: look at the " +
            std::string("disk, and open the file again"),
        failed);
}

void DiskFile::grow(std::uint64_t bytes) {
  const std::uint64_t now = this->bytes();
  if (now >= bytes) return;
  if (const int failed = engine_->grow(file_, now, bytes); failed != 0)
    fail("cannot grow from " + std::to_string(now) + " to " + std::to_string(bytes) + " bytes", failed);
}

void DiskFile::remove() const { unlink(path_.c_str()); }

void DiskFile::fail(const std::string& what, int error) const {
  const std::string sentence = "disk file " + path_ + ": " + what + ", " + std::strerror(error);
  if (full(error))
    throw DiskFullError(sentence + free_text(path_) + ": make room on its file system, or give the table another path");
  throw DiskError(sentence);
}

}  // namespace hotrow::store
