// Memory over several NUMA nodes: pages of blocks that are mapped from now on go to the nodes in turn, so that every
// socket reads a share of each table from its own memory. By the system call itself: libnuma is not needed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hotrow::store {

constexpr int kNodesMax = 64;

// Bit n is node n; 0 turns it off. Tries it on a page first: returns 0, or the errno of the refusal, which turns it
// off.
int set_interleave(std::uint64_t nodes);

// Called for every new block before it is touched. A refusal costs locality only, and is counted.
void interleave_block(void* address, std::size_t bytes);

struct InterleaveCounts {
  std::size_t blocks;   // whose pages are interleaved
  std::size_t refused;  // blocks that the system did not interleave
};

InterleaveCounts interleave_counts();

}  // namespace hotrow::store
