// Who has a segment's file. The owner holds a lock (flock) that the system takes back when the process ends, however it
// ends. The lock lies on a descriptor of its own, which a forked child closes at once: a child that lives on, or the
// memory it inherited, then does not keep a dead owner's segment locked.
//
// A directory such as /dev/shm is everybody's, so a file that is found there may be anybody's: it is used only if it is
// a plain file of this process's user, with no rights for others and no second name.
#pragma once

#include <cstdint>
#include <string>

namespace hotrow::store {

// SegmentError unless the open file belongs to this process's user alone.
void check_ours(int descriptor, const std::string& path);

class SegmentOwner {
 public:
  // Makes the file or finds it, and locks it; SegmentError where that cannot be, or must not be.
  explicit SegmentOwner(const std::string& path);
  ~SegmentOwner() { release(false); }
  SegmentOwner(const SegmentOwner&) = delete;
  SegmentOwner& operator=(const SegmentOwner&) = delete;

  int descriptor() const { return file_; }  // for reading, growing and mapping
  std::uint64_t bytes() const;              // of the file, now
  bool in_child() const;                    // this process was forked from the owner, and is not it
  // Unlocks, after removing the file if asked. In a forked child it does neither: the file is its parent's.
  void release(bool remove) noexcept;

 private:
  bool open();
  bool make();
  bool find();
  [[noreturn]] void fail_in_use();

  std::string path_;
  int process_;
  int file_ = -1;
  int lock_ = -1;
};

// A look at a file that may be another process's: never waits and never keeps the lock.
class FileProbe {
 public:
  explicit FileProbe(const std::string& path);
  ~FileProbe();
  FileProbe(const FileProbe&) = delete;
  FileProbe& operator=(const FileProbe&) = delete;

  int descriptor() const { return file_; }
  std::uint64_t bytes() const;
  bool locked() const;

 private:
  int file_;
};

}  // namespace hotrow::store
