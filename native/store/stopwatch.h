// Adds the time from its making to its end to a counter.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace hotrow::store {

class Stopwatch {
 public:
  explicit Stopwatch(std::atomic<std::uint64_t>& nanoseconds) : nanoseconds_(nanoseconds) {}
  ~Stopwatch() {
    const auto passed = std::chrono::steady_clock::now() - start_;
    nanoseconds_ += static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count());
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::atomic<std::uint64_t>& nanoseconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace hotrow::store
