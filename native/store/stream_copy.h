// A copy past the caches, for megabytes that another process reads next: a ring of shared memory.
#pragma once

#include <cstddef>

namespace hotrow::store {

// Copies `size` bytes between memories that do not overlap. Stores do not read the lines that they overwrite into the
// cache first, which is a third of the memory traffic of a plain copy, and evict nothing else. All bytes are visible to
// other processors on return. Where the processor has no such stores it is a plain copy.
void stream_copy(std::byte* to, const std::byte* from, std::size_t size);

}  // namespace hotrow::store
