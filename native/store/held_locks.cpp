#include "store/held_locks.h"

#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <vector>

namespace hotrow::store {
namespace {

std::mutex locks_mutex;
std::vector<int> locks;

void before_fork() { locks_mutex.lock(); }
void after_fork_in_parent() { locks_mutex.unlock(); }
void after_fork_in_child() {
  for (const int lock : locks) close(lock);
  locks.clear();
  locks_mutex.unlock();
}

// When the module is loaded: a handler that is registered later could be in the middle of that at a fork.
[[maybe_unused]] const int registered = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);

}  // namespace

void remember_lock(int descriptor) {
  const std::lock_guard held(locks_mutex);
  locks.push_back(descriptor);
}

void forget_lock(int descriptor) {
  const std::lock_guard held(locks_mutex);
  std::erase(locks, descriptor);
}

}  // namespace hotrow::store
