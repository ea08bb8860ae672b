#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "store/disk_io.h"

namespace hotrow::store {

void run_request(int descriptor, IoKind kind, IoRequest& request) {
  while (request.done < request.bytes) {
    std::byte* const memory = request.memory + request.done;
    const std::size_t left = request.bytes - request.done;
    const auto offset = static_cast<off_t>(request.offset + request.done);
    const ssize_t moved =
        kind == IoKind::read ? pread(descriptor, memory, left, offset) : pwrite(descriptor, memory, left, offset);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) {
      request.error = errno;
      return;
    }
    if (moved == 0 && kind == IoKind::write) {
      request.error = EIO;
      return;
    }
    if (moved == 0) break;
    request.done += static_cast<std::size_t>(moved);
    // Direct I/O ends at the end of the file; another call would start where it may not.
    if (kind == IoKind::read && request.done % 512 != 0) break;
  }
  if (kind == IoKind::read) std::memset(request.memory + request.done, 0, request.bytes - request.done);
}

namespace {

constexpr int kThreadsMost = 32;  // a deeper queue would be as many threads

class ThreadPoolIo final : public IoEngine {
 public:
  ThreadPoolIo(int descriptor, int depth)
      : descriptor_(descriptor), depth_(static_cast<std::size_t>(std::min(depth, kThreadsMost))) {}
  ThreadPoolIo(const ThreadPoolIo&) = delete;
  ThreadPoolIo& operator=(const ThreadPoolIo&) = delete;
  ~ThreadPoolIo() override {
    {
      const std::lock_guard held(mutex_);
      ends_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  const char* name() const override { return "threads"; }

  void run(IoKind kind, std::span<IoRequest> requests, const std::function<void(IoRequest&)>& finished) override {
    Job job{kind, requests, finished, 0, 0};
    const auto helpers = std::min<std::size_t>(requests.size() - (requests.empty() ? 0 : 1), depth_ - 1);
    std::unique_lock held(mutex_);
    for (std::size_t i = 0; i < helpers; ++i) queue_.push_back(&job);
    while (threads_.size() < helpers) threads_.emplace_back([this] { serve(); });
    if (helpers > 0) wake_.notify_all();
    work(job, held);
    std::erase(queue_, &job);  // helpers that found nothing left to do
    job_done_.wait(held, [&] { return job.workers == 0; });
  }

 private:
  struct Job {
    IoKind kind;
    std::span<IoRequest> requests;
    const std::function<void(IoRequest&)>& finished;
    std::size_t next, workers;
  };

  // Requests of a job until none is left; the lock is held outside of the I/O.
  void work(Job& job, std::unique_lock<std::mutex>& held) {
    ++job.workers;
    while (job.next < job.requests.size()) {
      IoRequest& request = job.requests[job.next++];
      held.unlock();
      run_request(descriptor_, job.kind, request);
      job.finished(request);
      held.lock();
    }
    if (--job.workers == 0) job_done_.notify_all();
  }

  void serve() {
    std::unique_lock held(mutex_);
    for (;;) {
      wake_.wait(held, [&] { return ends_ || !queue_.empty(); });
      if (queue_.empty()) return;
      Job* const job = queue_.front();
      queue_.pop_front();
      work(*job, held);
    }
  }

  const int descriptor_;
  const std::size_t depth_;
  std::mutex mutex_;
  std::condition_variable wake_, job_done_;
  std::deque<Job*> queue_;
  std::vector<std::thread> threads_;
  bool ends_ = false;
};

}  // namespace

std::unique_ptr<IoEngine> make_thread_pool(int descriptor, int depth) {
  return std::make_unique<ThreadPoolIo>(descriptor, depth);
}

}  // namespace hotrow::store
