#include "store/parallel.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace hotrow::store {
namespace {

// One parallel_run: whoever holds it takes tasks from `next` until none is left.
struct Job {
  TaskFunction function;
  void* context;
  std::size_t tasks;
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> done{0};
  std::mutex mutex;
  std::condition_variable finished;
  std::exception_ptr error;

  void work() {
    for (std::size_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
      try {
        function(context, task);
      } catch (...) {
        const std::lock_guard held(mutex);
        if (!error) error = std::current_exception();
      }
      if (done.fetch_add(1, std::memory_order_acq_rel) + 1 == tasks) {
        const std::lock_guard held(mutex);
        finished.notify_all();
      }
    }
  }
};

// Sleeping and waking takes longer than most of our tasks, and the parts of one batch follow each other closely: so a
// thread looks around for some 50 to 200 µs before it sleeps.
template <typename Ready>
void spin_until(Ready ready) {
  for (int turn = 0; turn < 4000 && !ready(); ++turn) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
}

cpu_set_t cpu_set_of(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus)
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  return set;
}

class Pool {
 public:
  int bind(std::span<const std::vector<int>> sets) {
    const std::lock_guard held(mutex_);
    sets_.clear();
    for (const std::vector<int>& cpus : sets) sets_.push_back(cpu_set_of(cpus));
    int error = 0;
    for (std::size_t number = 0; number < threads_.size(); ++number) {
      const int failed = bind_thread(number);
      if (error == 0) error = failed;
    }
    return error;
  }

  void help(const std::shared_ptr<Job>& job, int helpers) {
    {
      const std::lock_guard held(mutex_);
      while (std::cmp_less(threads_.size(), helpers)) start_thread();
      for (int i = 0; i < helpers; ++i) queue_.push_back(job);
      queued_.store(queue_.size(), std::memory_order_release);
    }
    if (helpers == 1)
      wake_.notify_one();
    else
      wake_.notify_all();
  }

 private:
  void start_thread() {
    threads_.reserve(threads_.size() + 1);  // nothing may fail between the start and the detach
    std::thread thread([this] { serve(); });
    threads_.push_back(thread.native_handle());
    thread.detach();  // it never ends, so its handle stays good
    pthread_setname_np(threads_.back(), "hotrow-store");
    bind_thread(threads_.size() - 1);  // a processor that is gone costs locality, not the batch
  }

  int bind_thread(std::size_t number) {
    if (sets_.empty()) return 0;
    const cpu_set_t& set = sets_[number % sets_.size()];
    return pthread_setaffinity_np(threads_[number], sizeof(set), &set);
  }

  void serve() {
    for (;;) {
      spin_until([this] { return queued_.load(std::memory_order_acquire) != 0; });
      std::unique_lock held(mutex_);
      wake_.wait(held, [this] { return !queue_.empty(); });
      const std::shared_ptr<Job> job = std::move(queue_.front());
      queue_.pop_front();
      queued_.store(queue_.size(), std::memory_order_release);
      held.unlock();
      job->work();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Job>> queue_;
  std::atomic<std::size_t> queued_{0};  // of the queue, to look at without the lock
  std::vector<pthread_t> threads_;
  std::vector<cpu_set_t> sets_;  // that they are bound to in turn; empty: they are not
};

// Never destroyed: its threads may outlive the interpreter's teardown. A forked child has none of the parent's threads,
// so it gets a pool of its own.
std::atomic<Pool*> current_pool{nullptr};

void forget_pool() { current_pool.store(nullptr); }

// When the module is loaded: a handler that is registered at the first call could be in the middle of that at a fork.
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, forget_pool);

Pool& pool() {
  Pool* found = current_pool.load();
  if (found == nullptr) {
    auto* fresh = new Pool();
    if (current_pool.compare_exchange_strong(found, fresh)) return *fresh;
    delete fresh;
  }
  return *found;
}

constexpr int kThreadsMax = 1024;

}  // namespace

int bind_kept_threads(std::span<const std::vector<int>> sets) { return pool().bind(sets); }

void parallel_run(int threads, std::size_t tasks, TaskFunction function, void* context) {
  if (threads > kThreadsMax) threads = kThreadsMax;
  if (std::cmp_greater(threads, tasks)) threads = static_cast<int>(tasks);
  if (threads <= 1) {
    for (std::size_t task = 0; task < tasks; ++task) function(context, task);
    return;
  }
  auto job = std::make_shared<Job>();
  job->function = function;
  job->context = context;
  job->tasks = tasks;
  pool().help(job, threads - 1);
  job->work();
  const auto finished = [&] { return job->done.load(std::memory_order_acquire) == job->tasks; };
  spin_until(finished);
  std::unique_lock held(job->mutex);
  job->finished.wait(held, finished);
  if (job->error) std::rethrow_exception(job->error);
}

}  // namespace hotrow::store
