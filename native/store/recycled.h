// Arrays of a plan. A plan of a large batch takes tens of megabytes, and the system has to clear fresh pages first. A
// plan is often made in one thread and freed in another, and the heaps of threads return what they can to the system.
// So a large array that is freed waits here for the next plan of about the same size.
#pragma once

#include <cstddef>
#include <utility>

namespace hotrow::store {

struct Block {
  void* data = nullptr;
  std::size_t bytes = 0;
};

// Thread-safe. Blocks of fewer than kRecycledMin bytes go back to the heap at once.
constexpr std::size_t kRecycledMin = std::size_t{64} << 10;
constexpr std::size_t kRecycledKept = std::size_t{256} << 20;  // bytes that wait at most

Block take_block(std::size_t bytes);    // of as many bytes or up to half as many again, uninitialised
void give_block(Block block) noexcept;  // one that was taken
std::size_t waiting_bytes();

// An array of a trivial type.
template <typename T>
class Recycled {
 public:
  Recycled() = default;
  Recycled(const Recycled&) = delete;
  Recycled& operator=(const Recycled&) = delete;
  Recycled(Recycled&& other) noexcept : block_(std::exchange(other.block_, {})) {}
  Recycled& operator=(Recycled&& other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~Recycled() { give_block(block_); }

  // Room for `count` values, uninitialised.
  void make(std::size_t count) {
    give_block(std::exchange(block_, {}));
    block_ = take_block(count * sizeof(T));
  }

  T* get() const { return static_cast<T*>(block_.data); }
  T& operator[](std::size_t i) const { return get()[i]; }

 private:
  Block block_;
};

}  // namespace hotrow::store
