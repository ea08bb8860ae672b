#include "store/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <new>

#include "store/numa.h"

namespace hotrow::store {
namespace {

constexpr std::size_t kHugePage = 2 << 20;
constexpr std::size_t kLine = 64;
constexpr std::size_t kBlockMax = 64 << 20;
constexpr std::size_t kPieceMax = std::size_t{1} << 46;  // more than any machine has, and sums with it cannot overflow

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

Arena::~Arena() {
  for (const auto& [address, bytes] : mappings_) munmap(address, bytes);
}

std::byte* Arena::allocate(std::size_t bytes) {
  const std::lock_guard held(mutex_);
  if (bytes > kPieceMax) throw std::bad_alloc();
  bytes = round_up(bytes, kLine);
  if (bytes > free_bytes_) map_block(std::max(next_block_, bytes));
  std::byte* piece = free_;
  free_ += bytes;
  free_bytes_ -= bytes;
  handed_out_ += bytes;
  return piece;
}

std::size_t Arena::bytes() const {
  const std::lock_guard held(mutex_);
  return handed_out_;
}

void Arena::map_block(std::size_t bytes) {
  mappings_.reserve(mappings_.size() + 1);  // before the mapping, so that nothing can fail after it
  const bool huge = bytes >= kHugePage;
  const std::size_t room = huge ? bytes + kHugePage : bytes;  // enough to start at a 2 MB border
  void* address = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
  mappings_.emplace_back(address, room);
  interleave_block(address, room);
  free_ = static_cast<std::byte*>(address);
  free_bytes_ = bytes;
  next_block_ = std::min(next_block_ * 2, kBlockMax);
  if (!huge) return;
  free_ = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(address), kHugePage));
#if defined(MADV_HUGEPAGE)
  madvise(free_, bytes, MADV_HUGEPAGE);  // a wish: without huge pages the table is slower, not wrong
#endif
}

}  // namespace hotrow::store
