// What goes over the wire instead of float32 rows and repeated 64-bit ids.
//
// Rows: each row is multiplied by scale = kappa / (largest finite |v|) and rounded to fp16, nearest even; the float32
// scale goes beside it. The largest element lands on kappa = 2^14, so nothing overflows and an element keeps 11 bits
// down to 2^-28 of the largest. The scale is at most the largest float32 (rows of denormals), and 1 where no element is
// finite and other than zero. Zeros keep their sign, infinities stay, a NaN stays a NaN.
//
// Ids: a key goes once, followed by the sample of each of its occurrences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "store/hash.h"
#include "store/isa.h"

namespace hotrow::store {

using Half = std::uint16_t;  // the bits of an IEEE binary16

void encode_rows(const float* rows, std::size_t count, std::size_t dim, Half* half, float* scale, int threads);
void decode_rows(const Half* half, const float* scale, std::size_t count, std::size_t dim, float* rows, int threads);

// Fills unique_keys[U], counts[U] (room for N each) and samples[N]: the bag of every occurrence, key by key in the
// order of unique_keys, ascending within a key. Returns U. Sample is uint16 or uint32. Throws std::invalid_argument,
// before it writes, if offsets are not those of bags.
template <typename Sample>
std::size_t compress_ids(std::span<const Key> keys, std::span<const std::int64_t> offsets, Key* unique_keys,
                         std::uint32_t* counts, Sample* samples, int threads);

// Back to keys[N] and offsets[bags + 1]. A bag comes back with the same keys as often as they were, in the order of
// unique_keys. Throws std::invalid_argument, before it writes, if counts do not add up or a sample is beyond the bags.
template <typename Sample>
void expand_ids(std::span<const Key> unique_keys, std::span<const std::uint32_t> counts,
                std::span<const Sample> samples, std::size_t bags, Key* keys, std::int64_t* offsets);

struct CodecKernels {
  void (*encode)(const float* rows, std::size_t count, std::size_t dim, Half* half, float* scale);
  void (*decode)(const Half* half, const float* scale, std::size_t count, std::size_t dim, float* rows);
};

HOTROW_KERNELS(CodecKernels, codec_kernels)

}  // namespace hotrow::store
