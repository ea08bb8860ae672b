#include "store/segment_owner.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "store/held_locks.h"
#include "store/segment_format.h"

namespace hotrow::store {
namespace {

// A listing probes the lock for an instant, and a lock of a killed process goes a moment after it: so try for a while.
constexpr int kTries = 20;
constexpr auto kPause = std::chrono::milliseconds(10);

constexpr int kFoundFlags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;  // of every file that another user may have made

bool same_file(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw SegmentError("segment " + path + ": " + what);
}

[[noreturn]] void fail_stranger(const std::string& path, uid_t owner) {
  fail(path, "is owned by uid " + std::to_string(owner) + " and this process runs as uid " + std::to_string(geteuid()) +
                 ": choose another run or directory, or have its owner remove it");
}

[[noreturn]] void fail_open(const std::string& path) {
  const int error = errno;
  struct stat named;
  if (error == EACCES && lstat(path.c_str(), &named) == 0 && named.st_uid != geteuid())
    fail_stranger(path, named.st_uid);
  std::string what = std::string("cannot be opened, ") + std::strerror(error);
  if (error == ENOENT) what += ": make its directory first, or choose another";
  fail(path, what);
}

std::string octal(mode_t mode) {
  char text[16];
  std::snprintf(text, sizeof text, "%04o", static_cast<unsigned>(mode & 07777));
  return text;
}

// A user who may remove or rename files of the directory could put another in the place of ours at any time. A sticky
// directory, as /dev/shm is, keeps each user to files of their own.
void check_safe_directory(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, std::max<std::size_t>(slash, 1));
  struct stat found;
  if (stat(directory.c_str(), &found) != 0 || (found.st_mode & S_IWOTH) == 0 || (found.st_mode & S_ISVTX) != 0) return;
  fail(path, "its directory " + directory + " has mode " + octal(found.st_mode) +
                 ", so every user may remove or replace its files: chmod o-w or chmod +t it, or choose another");
}

std::uint64_t size_of(int descriptor) {
  struct stat now;
  return fstat(descriptor, &now) == 0 ? static_cast<std::uint64_t>(now.st_size) : 0;
}

}  // namespace

// What a stranger made would be ours to trust and his to read, to change and to cut short under our hands; what has a
// second name may be some other file of ours.
void check_ours(int descriptor, const std::string& path) {
  struct stat found;
  if (fstat(descriptor, &found) != 0) fail(path, std::string("cannot be looked at, ") + std::strerror(errno));
  if (!S_ISREG(found.st_mode)) fail(path, "is not a plain file; move it away or choose another directory");
  if (found.st_uid != geteuid()) fail_stranger(path, found.st_uid);
  if ((found.st_mode & 077) != 0)
    fail(path, "has mode " + octal(found.st_mode) + ", so others may read or change it: if its rows can be trusted, " +
                   "chmod 600 it, else remove it with: hotrow segments remove " + path);
  if (found.st_nlink > 1)
    fail(path, "has " + std::to_string(found.st_nlink) +
                   " names (hard links), so others may use it too: remove the other names, or choose another run");
}

SegmentOwner::SegmentOwner(const std::string& path) : path_(path), process_(getpid()) {
  check_safe_directory(path);
  for (int tries = 0; tries < kTries; ++tries) {
    if (open()) return;
    std::this_thread::sleep_for(kPause);
  }
  fail_in_use();
}

// False: try again. The file may be locked, or may have been removed by its last owner between opening and locking.
bool SegmentOwner::open() {
  if (!make() && !find()) return false;
  lock_ = ::open(path_.c_str(), O_RDONLY | kFoundFlags);
  const int error = lock_ < 0 ? errno : flock(lock_, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  struct stat opened, locked, named;
  if (error == 0 && fstat(file_, &opened) == 0 && fstat(lock_, &locked) == 0 && same_file(opened, locked) &&
      lstat(path_.c_str(), &named) == 0 && same_file(opened, named)) {
    remember_lock(lock_);
    return true;
  }
  release(false);
  if (error == 0 || error == EWOULDBLOCK || error == ENOENT || error == EINTR) return false;
  fail(path_, std::string("cannot be locked, ") + std::strerror(error));
}

// False: there is a file, or a link that leads anywhere.
bool SegmentOwner::make() {
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | kFoundFlags, 0600);
  if (file_ < 0 && errno != EEXIST) fail_open(path_);
  return file_ >= 0;
}

// Opens the file that is there, if it is ours alone; false: it went meanwhile.
bool SegmentOwner::find() {
  file_ = ::open(path_.c_str(), O_RDWR | kFoundFlags);
  if (file_ < 0 && errno == ENOENT) return false;
  if (file_ < 0) fail_open(path_);
  try {
    check_ours(file_, path_);
  } catch (...) {
    release(false);
    throw;
  }
  return true;
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
    forget_lock(lock_);
    close(lock_);
  }
  file_ = lock_ = -1;
}

void SegmentOwner::fail_in_use() {
  SegmentHeader header{};
  const FileProbe file(path_);
  const bool read = pread(file.descriptor(), &header, sizeof header, 0) == sizeof header && header.owner != 0;
  const std::string who = !read                                    ? "another process"
                          : std::cmp_equal(header.owner, getpid()) ? "this process"
                                                                   : "process " + std::to_string(header.owner);
  fail(path_, "in use by " + who + "; end it, or give this table another run or name");
}

FileProbe::FileProbe(const std::string& path) : file_(::open(path.c_str(), O_RDONLY | kFoundFlags)) {
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
