#include "store/recycled.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <new>
#include <vector>

namespace hotrow::store {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kBytesMax = std::size_t{1} << 46;  // more than any machine has

struct Waiting {
  Waiting() { blocks.reserve(kRecycledKept / kRecycledMin); }  // so that giving one back cannot fail

  std::mutex mutex;
  std::vector<Block> blocks;  // the one that waits longest is first
  std::size_t bytes = 0;
};

// Never destroyed: a plan may outlive everything else of the program.
Waiting& waiting() {
  static Waiting* const made = new Waiting;
  return *made;
}

// In eighths of a power of two: batches of a run differ a little in their unique keys.
std::size_t rounded(std::size_t bytes) {
  const std::size_t step = std::max(kAlignment, std::bit_floor(bytes) / 8);
  return std::max(step, (bytes + step - 1) / step * step);
}

}  // namespace

Block take_block(std::size_t bytes) {
  if (bytes > kBytesMax) throw std::bad_alloc();
  const std::size_t size = rounded(bytes);
  if (size >= kRecycledMin) {
    Waiting& all = waiting();
    const std::lock_guard lock(all.mutex);
    // The newest one that fits is the likeliest to be in a cache.
    const auto fits = std::find_if(all.blocks.rbegin(), all.blocks.rend(), [=](const Block& block) {
      return block.bytes >= size && block.bytes <= size + size / 2;
    });
    if (fits != all.blocks.rend()) {
      const Block block = *fits;
      all.bytes -= block.bytes;
      all.blocks.erase(std::next(fits).base());
      return block;
    }
  }
  void* const data = std::aligned_alloc(kAlignment, size);
  if (data == nullptr) throw std::bad_alloc();
  return {data, size};
}

void give_block(Block block) noexcept {
  if (block.bytes < kRecycledMin || block.bytes > kRecycledKept) {
    std::free(block.data);
    return;
  }
  Waiting& all = waiting();
  const std::lock_guard lock(all.mutex);
  while (all.bytes + block.bytes > kRecycledKept) {
    all.bytes -= all.blocks.front().bytes;
    std::free(all.blocks.front().data);
    all.blocks.erase(all.blocks.begin());
  }
  all.blocks.push_back(block);
  all.bytes += block.bytes;
}

std::size_t waiting_bytes() {
  Waiting& all = waiting();
  const std::lock_guard lock(all.mutex);
  return all.bytes;
}

}  // namespace hotrow::store
