// Threads for one batch: run(task) for every task in [0, tasks), on at most `threads` threads, the caller among them.
// The threads are kept between calls. Which thread runs a task is left open, so results must not depend on it.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

namespace hotrow::store {

using TaskFunction = void (*)(void* context, std::size_t task);

void parallel_run(int threads, std::size_t tasks, TaskFunction function, void* context);

// Binds kept thread i, those of later calls too, to the processors of set i modulo the number of sets; the threads that
// call are left as they are. Returns 0, or the errno of the first refusal.
int bind_kept_threads(std::span<const std::vector<int>> sets);

template <typename Body>
void parallel_for(int threads, std::size_t tasks, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  auto call = [](void* context, std::size_t task) { (*static_cast<Plain*>(context))(task); };
  parallel_run(threads, tasks, call, const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace hotrow::store
