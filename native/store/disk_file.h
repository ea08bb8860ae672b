// The file of a disk tier: opened for one process alone, with direct I/O where its file system takes it, grown in
// steps.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>
#include <string>

#include "store/disk_format.h"
#include "store/disk_io.h"

namespace hotrow::store {

// Memory for direct I/O.
class AlignedBuffer {
 public:
  explicit AlignedBuffer(std::size_t bytes = 0) : bytes_((bytes + kPage - 1) / kPage * kPage) {
    if (bytes_ == 0) return;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, bytes_)));
    if (!memory_) throw std::bad_alloc();
  }
  std::byte* data() const { return memory_.get(); }
  std::size_t size() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::size_t bytes_;
};

class DiskFile {
 public:
  // Makes the file or opens the one that is there; DiskLockedError where another process, or this one, has it open.
  DiskFile(const std::string& path, bool direct, IoChoice io, int depth, const WrapEngine& wrap = {});
  ~DiskFile();
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;

  const std::string& path() const { return path_; }
  std::uint64_t bytes() const;
  bool direct() const { return direct_; }
  const char* io_name() const { return engine_->name(); }

  void run(IoKind kind, std::span<IoRequest> requests, const std::function<void(IoRequest&)>& finished);
  // All of them, or DiskError with the first that failed; DiskFullError where the file system has no room.
  void read(std::span<IoRequest> requests);
  void write(std::span<IoRequest> requests);
  // After one that failed all later ones do.
  void sync();
  void check_flushed() const;  // DiskError where a flush has failed
  // The file has at least so many bytes from now on, and their blocks where the file system can promise them.
  void grow(std::uint64_t bytes);
  void remove() const;

  std::uint64_t reads() const { return reads_; }
  std::uint64_t read_bytes() const { return read_bytes_; }
  std::uint64_t writes() const { return writes_; }
  std::uint64_t write_bytes() const { return write_bytes_; }
  std::uint64_t syncs() const { return syncs_; }

  [[noreturn]] void fail(const std::string& what, int error) const;

 private:
  void check_done(const IoRequest& request, const char* what) const;

  std::string path_;
  int file_ = -1, lock_ = -1;
  bool direct_ = false;
  std::unique_ptr<IoEngine> engine_;
  std::atomic<int> lost_{0};  // errno of a flush that failed
  std::atomic<std::uint64_t> reads_{0}, read_bytes_{0}, writes_{0}, write_bytes_{0}, syncs_{0};
};

}  // namespace hotrow::store
