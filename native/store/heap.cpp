#include "store/heap.h"

#include <algorithm>
#include <limits>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace hotrow::store {

bool keep_freed_memory([[maybe_unused]] std::size_t bytes) {
#if defined(__GLIBC__)
  constexpr int kHeapBlockMax = 32 << 20;  // the largest that glibc accepts: larger blocks are always mapped
  const auto kept = static_cast<int>(std::min<std::size_t>(bytes, std::numeric_limits<int>::max()));
  return mallopt(M_MMAP_THRESHOLD, kHeapBlockMax) == 1 && mallopt(M_TRIM_THRESHOLD, kept) == 1;
#else
  return false;
#endif
}

}  // namespace hotrow::store
