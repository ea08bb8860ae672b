// Duplicate keys of a batch found by hashing, in the order in which keys first occur.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "store/hash.h"
#include "store/scratch.h"

namespace hotrow::store {

// Fills unique_keys[U] and counts[U], and inverse[N] such that keys[i] == unique_keys[inverse[i]]; returns U. All three
// buffers have room for N values; what lies beyond U is left undefined. N is below 2^32 - 1. The result does not depend
// on `threads`.
std::size_t unique(std::span<const Key> keys, Key* unique_keys, std::uint32_t* inverse, std::uint32_t* counts,
                   int threads);

// The same on this thread. `unique_keys` may be the memory of `keys`.
std::size_t unique_serial(std::span<const Key> keys, Key* unique_keys, std::uint32_t* inverse, std::uint32_t* counts,
                          Scratch<std::uint32_t>& slots);

// Threads that are worth using for so many keys: 1 where folding them on one thread is as fast.
int folding_threads(std::size_t keys, int threads);

}  // namespace hotrow::store
