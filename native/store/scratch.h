// Memory that a batch needs only while it runs. A Scratch is kept (thread_local) from batch to batch and grows to the
// largest one, so a running trainer allocates nothing; what a single giant batch left behind is given back.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>

namespace hotrow::store {

template <typename T>
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::free(data_); }

  // Room for `count` values, uninitialised. What an earlier call gave is void.
  T* take(std::size_t count) {
    if (count > kBytesMax / sizeof(T)) throw std::bad_alloc();
    const std::size_t bytes = (count * sizeof(T) + kHugePage - 1) / kHugePage * kHugePage;
    if (bytes > bytes_ || (bytes_ > kKeepBytes && bytes < bytes_ / 4)) renew(bytes);
    return data_;
  }

 private:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
  static constexpr std::size_t kKeepBytes = std::size_t{64} << 20;
  static constexpr std::size_t kBytesMax = std::size_t{1} << 46;  // more than any machine has

  void renew(std::size_t bytes) {
    std::free(data_);
    bytes_ = 0;
    data_ = static_cast<T*>(std::aligned_alloc(kHugePage, bytes));
    if (data_ == nullptr) throw std::bad_alloc();
    bytes_ = bytes;
#if defined(MADV_HUGEPAGE)
    madvise(data_, bytes, MADV_HUGEPAGE);  // a wish: without it random access pays for page walks
#endif
  }

  T* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace hotrow::store
