#include "store/disk_io.h"

#if defined(__linux__) && __has_include(<linux/io_uring.h>)

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>
#include <vector>

#include "store/atomic_ref.h"

namespace hotrow::store {
namespace {

// One submission and completion queue pair, used by one thread at a time.
class Ring {
 public:
  static std::unique_ptr<Ring> make(unsigned entries) {
    auto ring = std::unique_ptr<Ring>(new Ring());
    return ring->open(entries) ? std::move(ring) : nullptr;
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() {
    if (queues_ != MAP_FAILED) munmap(queues_, queues_bytes_);
    if (entries_ != MAP_FAILED) munmap(entries_, parameters_.sq_entries * sizeof(io_uring_sqe));
    if (descriptor_ >= 0) close(descriptor_);
  }

  unsigned capacity() const { return parameters_.sq_entries; }

  void put(int file, IoKind kind, const IoRequest& request, std::uint64_t user_data) {
    const std::uint32_t tail = *submission_tail_;
    const std::uint32_t place = tail & (parameters_.sq_entries - 1);
    io_uring_sqe& entry = static_cast<io_uring_sqe*>(entries_)[place];
    std::memset(&entry, 0, sizeof entry);
    entry.opcode = kind == IoKind::read ? IORING_OP_READ : IORING_OP_WRITE;
    entry.fd = file;
    entry.off = request.offset + request.done;
    entry.addr = reinterpret_cast<std::uint64_t>(request.memory + request.done);
    entry.len = static_cast<std::uint32_t>(request.bytes - request.done);
    entry.user_data = user_data;
    submission_array_[place] = place;
    atomic_ref(*submission_tail_).store(tail + 1, std::memory_order_release);
    ++unsubmitted_;
  }

  // Submits what was put, and waits for one completion at least. errno, or 0.
  int submit_and_wait() {
    for (;;) {
      const long taken = syscall(__NR_io_uring_enter, descriptor_, unsubmitted_, 1, IORING_ENTER_GETEVENTS, nullptr, 0);
      if (taken >= 0) {
        unsubmitted_ -= static_cast<unsigned>(taken);
        return 0;
      }
      if (errno != EINTR && errno != EAGAIN && errno != EBUSY) return errno;
    }
  }

  template <typename Body>
  void completions(Body&& body) {
    std::uint32_t head = *completion_head_;
    while (head != atomic_ref(*completion_tail_).load(std::memory_order_acquire)) {
      const io_uring_cqe entry = completions_[head & (parameters_.cq_entries - 1)];
      atomic_ref(*completion_head_).store(++head, std::memory_order_release);
      body(entry.user_data, entry.res);
    }
  }

 private:
  Ring() = default;

  bool open(unsigned entries) {
    descriptor_ = static_cast<int>(syscall(__NR_io_uring_setup, entries, &parameters_));
    if (descriptor_ < 0 || (parameters_.features & IORING_FEAT_SINGLE_MMAP) == 0) return false;
    queues_bytes_ = std::max<std::size_t>(parameters_.sq_off.array + parameters_.sq_entries * sizeof(std::uint32_t),
                                          parameters_.cq_off.cqes + parameters_.cq_entries * sizeof(io_uring_cqe));
    queues_ = mmap(nullptr, queues_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor_,
                   IORING_OFF_SQ_RING);
    entries_ = mmap(nullptr, parameters_.sq_entries * sizeof(io_uring_sqe), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_POPULATE, descriptor_, IORING_OFF_SQES);
    if (queues_ == MAP_FAILED || entries_ == MAP_FAILED) return false;
    // A forked child has no use for the queues, and must not touch its parent's.
    madvise(queues_, queues_bytes_, MADV_DONTFORK);
    madvise(entries_, parameters_.sq_entries * sizeof(io_uring_sqe), MADV_DONTFORK);
    const auto at = [&](std::uint32_t offset) {
      return reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(queues_) + offset);
    };
    submission_tail_ = at(parameters_.sq_off.tail);
    submission_array_ = at(parameters_.sq_off.array);
    completion_head_ = at(parameters_.cq_off.head);
    completion_tail_ = at(parameters_.cq_off.tail);
    completions_ = reinterpret_cast<io_uring_cqe*>(at(parameters_.cq_off.cqes));
    return true;
  }

  io_uring_params parameters_ = {};
  int descriptor_ = -1;
  void* queues_ = MAP_FAILED;
  void* entries_ = MAP_FAILED;
  std::size_t queues_bytes_ = 0;
  unsigned unsubmitted_ = 0;
  std::uint32_t *submission_tail_ = nullptr, *submission_array_ = nullptr;
  std::uint32_t *completion_head_ = nullptr, *completion_tail_ = nullptr;
  io_uring_cqe* completions_ = nullptr;
};

class UringIo final : public IoEngine {
 public:
  UringIo(int descriptor, int depth, std::unique_ptr<Ring> first) : descriptor_(descriptor), depth_(depth) {
    idle_.push_back(std::move(first));
  }

  const char* name() const override { return "uring"; }

  void run(IoKind kind, std::span<IoRequest> requests, const std::function<void(IoRequest&)>& finished) override {
    std::unique_ptr<Ring> ring = take();
    if (!ring) {  // the kernel has no memory left for another one: one request after the other
      for (IoRequest& request : requests) {
        run_request(descriptor_, kind, request);
        finished(request);
      }
      return;
    }
    run(*ring, kind, requests, finished);
    const std::lock_guard held(mutex_);
    idle_.push_back(std::move(ring));
  }

 private:
  void run(Ring& ring, IoKind kind, std::span<IoRequest> requests, const std::function<void(IoRequest&)>& finished) {
    std::size_t next = 0, open = 0;
    std::exception_ptr failed;  // the kernel may still write into the buffers: first the end, then the exception
    while (open > 0 || next < requests.size()) {
      for (; open < ring.capacity() && next < requests.size(); ++next, ++open)
        ring.put(descriptor_, kind, requests[next], next);
      if (const int error = ring.submit_and_wait(); error != 0) std::terminate();  // of our own making only
      ring.completions([&](std::uint64_t number, std::int32_t result) {
        IoRequest& request = requests[number];
        --open;
        if (result > 0) request.done += static_cast<std::size_t>(result);
        // Cut short, interrupted, or refused for now: the plain calls finish it and know the rest.
        if (result == -EINTR || result == -EAGAIN || (result >= 0 && request.done < request.bytes))
          run_request(descriptor_, kind, request);
        else if (result < 0)
          request.error = -result;
        try {
          finished(request);
        } catch (...) {
          failed = std::current_exception();
        }
      });
    }
    if (failed) std::rethrow_exception(failed);
  }

  std::unique_ptr<Ring> take() {
    {
      const std::lock_guard held(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<Ring> ring = std::move(idle_.back());
        idle_.pop_back();
        return ring;
      }
    }
    return Ring::make(static_cast<unsigned>(depth_));
  }

  const int descriptor_;
  const int depth_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Ring>> idle_;
};

}  // namespace

std::unique_ptr<IoEngine> make_uring(int descriptor, int depth) {
  std::unique_ptr<Ring> ring = Ring::make(static_cast<unsigned>(depth));
  if (!ring) return nullptr;
  // The probe: some sandboxes let rings be made and refuse every operation.
  alignas(4096) std::byte page[4096];
  IoRequest request{0, page, sizeof page};
  ring->put(descriptor, IoKind::read, request, 0);
  if (ring->submit_and_wait() != 0) return nullptr;
  bool works = false;
  ring->completions([&](std::uint64_t, std::int32_t result) { works = result >= 0; });
  if (!works) return nullptr;
  return std::make_unique<UringIo>(descriptor, depth, std::move(ring));
}

}  // namespace hotrow::store

#else

namespace hotrow::store {

std::unique_ptr<IoEngine> make_uring(int /*descriptor*/, int /*depth*/) { return nullptr; }

}  // namespace hotrow::store

#endif
