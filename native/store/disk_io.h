// Batches of reads and writes of one file, many at a time: through io_uring where the kernel allows it, else by a pool
// of threads that call pread and pwrite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace hotrow::store {

struct IoRequest {
  std::uint64_t offset;
  std::byte* memory;
  std::size_t bytes;
  std::size_t done = 0;  // bytes; fewer than asked for without an error: the file ended
  int error = 0;         // errno
};

enum class IoKind { read, write };
enum class IoChoice { automatic, uring, threads };

class IoEngine {
 public:
  virtual ~IoEngine() = default;
  virtual const char* name() const = 0;
  // All requests, in any order; returns when the last is done. `finished` is called for each as it ends, by several
  // threads at once where the engine has them. Bytes that a file does not have are read as zeros. Thread-safe.
  virtual void run(IoKind kind, std::span<IoRequest> requests, const std::function<void(IoRequest&)>& finished) = 0;
  // Both return 0 or errno. What was written is on disk; the file has so many bytes, and their blocks where the file
  // system can promise them.
  virtual int sync(int descriptor);
  virtual int grow(int descriptor, std::uint64_t from, std::uint64_t to);
};

// Puts another engine around the one of a file: tests let a disk fail so.
using WrapEngine = std::function<std::unique_ptr<IoEngine>(std::unique_ptr<IoEngine>)>;

// Null: the kernel has no io_uring, or does not let this process use it.
std::unique_ptr<IoEngine> make_uring(int descriptor, int depth);
std::unique_ptr<IoEngine> make_thread_pool(int descriptor, int depth);

// One request on this thread, to its end: retried where it was cut short or interrupted.
void run_request(int descriptor, IoKind kind, IoRequest& request);

}  // namespace hotrow::store
