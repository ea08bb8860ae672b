#include "store/segment_owner.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "store/segment_format.h"

namespace hotrow::store {
namespace {

// A listing probes the lock for an instant, and a lock of a killed process goes a moment after it: so try for a while.
constexpr int kTries = 20;
constexpr auto kPause = std::chrono::milliseconds(10);

// The locked descriptors of this process, for the handler that a forked child runs.
std::mutex locks_mutex;
std::vector<int> locks;

void before_fork() { locks_mutex.lock(); }
void after_fork_in_parent() { locks_mutex.unlock(); }
void after_fork_in_child() {
  for (const int lock : locks) close(lock);
  locks.clear();
  locks_mutex.unlock();
}

void remember(int lock) {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); });
  const std::lock_guard held(locks_mutex);
  locks.push_back(lock);
}

void forget(int lock) {
  const std::lock_guard held(locks_mutex);
  std::erase(locks, lock);
}

bool same_file(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

[[noreturn]] void fail_open(const std::string& path) {
  const int error = errno;
  std::string what = "segment " + path + ": cannot be opened, " + std::strerror(error);
  if (error == ENOENT) what += ": make its directory first, or choose another";
  throw SegmentError(what);
}

std::uint64_t size_of(int descriptor) {
  struct stat now;
  return fstat(descriptor, &now) == 0 ? static_cast<std::uint64_t>(now.st_size) : 0;
}

}  // namespace

SegmentOwner::SegmentOwner(const std::string& path) : path_(path), process_(getpid()) {
  for (int tries = 0; tries < kTries; ++tries) {
    if (open()) return;
    std::this_thread::sleep_for(kPause);
  }
  fail_in_use();
}

// False: try again. The file may be locked, or may have been removed by its last owner between opening and locking.
bool SegmentOwner::open() {
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (file_ < 0) fail_open(path_);
  lock_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  const int error = lock_ < 0 ? errno : flock(lock_, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  struct stat opened, locked, named;
  if (error == 0 && fstat(file_, &opened) == 0 && fstat(lock_, &locked) == 0 && same_file(opened, locked) &&
      lstat(path_.c_str(), &named) == 0 && same_file(opened, named)) {
    remember(lock_);
    if (S_ISREG(opened.st_mode)) return true;
    release(false);
    throw SegmentError("segment " + path_ + ": is not a plain file; move it away or choose another directory");
  }
  release(false);
  if (error == 0 || error == EWOULDBLOCK || error == ENOENT || error == EINTR) return false;
  throw SegmentError("segment " + path_ + ": cannot be locked, " + std::strerror(error));
}

std::uint64_t SegmentOwner::bytes() const { return size_of(file_); }

bool SegmentOwner::in_child() const { return getpid() != process_; }

void SegmentOwner::release(bool remove) noexcept {
  const bool ours = !in_child();
  struct stat opened, named;
  if (remove && ours && file_ >= 0 && fstat(file_, &opened) == 0 && lstat(path_.c_str(), &named) == 0 &&
      same_file(opened, named))
    unlink(path_.c_str());
  if (file_ >= 0) close(file_);
  if (lock_ >= 0 && ours) {  // a child's copy is closed already
    forget(lock_);
    close(lock_);
  }
  file_ = lock_ = -1;
}

void SegmentOwner::fail_in_use() {
  SegmentHeader header{};
  const FileProbe file(path_);
  const bool read = pread(file.descriptor(), &header, sizeof header, 0) == sizeof header && header.owner != 0;
  const std::string who = !read ? "another process"
                          : header.owner == static_cast<std::uint32_t>(getpid())
                              ? "this process"
                              : "process " + std::to_string(header.owner);
  throw SegmentError("segment " + path_ + ": in use by " + who + "; end it, or give this table another run or name");
}

FileProbe::FileProbe(const std::string& path)
    : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) {
  if (file_ < 0) fail_open(path);
}

FileProbe::~FileProbe() { close(file_); }

std::uint64_t FileProbe::bytes() const { return size_of(file_); }

bool FileProbe::locked() const {
  if (flock(file_, LOCK_SH | LOCK_NB) != 0) return errno == EWOULDBLOCK;
  flock(file_, LOCK_UN);
  return false;
}

}  // namespace hotrow::store
