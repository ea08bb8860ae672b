// From key to row: an extendible hash over one partition's slab. It can always be derived from the rows again.
//
// A bucket is one cache line: 12 one-byte tags, 12 row indexes. A segment is a run of buckets; the directory maps the
// next bits of the hash to segments. A segment that fills up splits in two and nothing else moves, so growth comes in
// steps of some two thousand entries whatever the size of the table. Partitions have segments of different lengths,
// because equal ones would all fill at the same moment, everywhere in the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "store/arena.h"
#include "store/slab.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace hotrow::store {

constexpr int kBucketSlots = 12;

struct alignas(64) Bucket {
  std::uint8_t tags[kBucketSlots];  // 0: empty
  std::uint8_t overflow;            // entries whose home this is but that had to go further; sticks at 255
  std::uint8_t unused[3];
  std::uint32_t rows[kBucketSlots];
};
static_assert(sizeof(Bucket) == 64);

class Index {
 public:
  // `share` in [0, 1) is this partition's place in the cycle of growth.
  Index(Arena& arena, const Slab& slab, double share);

  // Where the key's entry lies unless its bucket overflowed: prefetch this, then ask first_match.
  const Bucket* home(SecretHash hash) const {
    const Segment* segment = directory_[directory_bits(hash) >> (kDirectoryBits - depth_)];
    return segment->buckets() + home_number(hash);
  }

  // The first row in the bucket with the key's tag: nearly always the key's row, but only the row itself can tell.
  static std::uint32_t first_match(const Bucket& bucket, SecretHash hash) {
    const std::uint32_t hits = matches(bucket, tag_of(hash));
    return hits == 0 ? kNoRow : bucket.rows[std::countr_zero(hits)];
  }

  // Makes room for so many entries at once. Only while there are none.
  void reserve(std::size_t entries);

  std::uint32_t find(SecretHash hash, Key key) const;  // kNoRow: absent
  void insert(SecretHash hash, std::uint32_t row);     // the key must be absent
  bool erase(SecretHash hash, std::uint32_t row);      // false: was not there

  std::size_t entries() const { return entries_; }
  std::size_t bytes() const { return segments_ * segment_bytes() + directory_.size() * sizeof(Segment*); }
  std::size_t splits() const { return segments_ - 1; }

  // Faults of the structure itself, as sentences.
  void verify(std::vector<std::string>& faults) const;

 private:
  struct alignas(64) Segment {
    std::uint32_t entries;
    std::uint32_t depth;  // how many directory bits its keys share
    Bucket* buckets() { return reinterpret_cast<Bucket*>(this + 1); }
    const Bucket* buckets() const { return reinterpret_cast<const Bucket*>(this + 1); }
  };

  static std::uint8_t tag_of(SecretHash hash) { return static_cast<std::uint8_t>(1 + tag_bits(hash) * 255 / 256); }

  static std::uint32_t matches(const Bucket& bucket, std::uint8_t tag) {
#if defined(__SSE2__)
    const __m128i tags = _mm_load_si128(reinterpret_cast<const __m128i*>(bucket.tags));
    const __m128i equal = _mm_cmpeq_epi8(tags, _mm_set1_epi8(static_cast<char>(tag)));
    return static_cast<std::uint32_t>(_mm_movemask_epi8(equal)) & ((1u << kBucketSlots) - 1);
#else
    std::uint32_t hits = 0;
    for (int slot = 0; slot < kBucketSlots; ++slot) hits |= std::uint32_t{bucket.tags[slot] == tag} << slot;
    return hits;
#endif
  }

  std::uint32_t home_number(SecretHash hash) const { return bucket_bits(hash) * buckets_ >> kBucketBits; }
  std::uint32_t next(std::uint32_t bucket) const { return bucket + 1 == buckets_ ? 0 : bucket + 1; }
  std::size_t segment_bytes() const { return sizeof(Segment) + buckets_ * sizeof(Bucket); }
  Segment* segment_of(SecretHash hash) const { return directory_[directory_bits(hash) >> (kDirectoryBits - depth_)]; }

  Segment* new_segment(std::uint32_t depth);
  void place(Segment& segment, SecretHash hash, std::uint32_t row) const;
  void split(SecretHash hash);

  Arena& arena_;
  const Slab& slab_;
  std::uint32_t buckets_;      // per segment
  std::uint32_t entries_max_;  // per segment, beyond which it splits
  std::uint32_t depth_ = 0;
  std::size_t segments_ = 0;
  std::size_t entries_ = 0;
  std::vector<Segment*> directory_;
  std::vector<std::uint32_t> moving_;  // scratch of split
};

}  // namespace hotrow::store
