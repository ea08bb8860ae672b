#include "store/index.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <stdexcept>
#include <unordered_set>

namespace hotrow::store {
namespace {

constexpr std::uint32_t kBucketsLeast = 128;  // 8 KB: small tables stay small, and a split takes some tens of µs
constexpr double kLoadMax = 0.85;             // beyond it, overflow makes lookups of absent keys long
constexpr std::uint8_t kSticky = 255;         // an overflow count that is no longer known

}  // namespace

Index::Index(Arena& arena, const Slab& slab, double share)
    : arena_(arena),
      slab_(slab),
      buckets_(static_cast<std::uint32_t>(kBucketsLeast * std::exp2(share))),
      entries_max_(static_cast<std::uint32_t>(buckets_ * kBucketSlots * kLoadMax)) {
  directory_.push_back(new_segment(0));
}

Index::Segment* Index::new_segment(std::uint32_t depth) {
  auto* segment = reinterpret_cast<Segment*>(arena_.allocate(segment_bytes()));
  segment->depth = depth;
  ++segments_;
  return segment;
}

void Index::reserve(std::size_t entries) {
  // Some segments get more than their share: a tenth of room keeps nearly all of them from splitting at the end.
  while (depth_ < kDirectoryBits && entries > (segments_ * entries_max_) / 10 * 9) {
    std::vector<Segment*> wider(directory_.size() * 2);
    for (std::size_t i = 0; i < wider.size(); ++i) {
      wider[i] = i % 2 == 0 ? directory_[i / 2] : new_segment(depth_ + 1);
      wider[i]->depth = depth_ + 1;
    }
    directory_.swap(wider);
    ++depth_;
  }
}

std::uint32_t Index::find(SecretHash hash, Key key) const {
  const Segment* segment = segment_of(hash);
  const std::uint8_t tag = tag_of(hash);
  const std::uint32_t home = home_number(hash);
  std::uint32_t number = home;
  do {
    const Bucket& bucket = segment->buckets()[number];
    for (std::uint32_t hits = matches(bucket, tag); hits != 0; hits &= hits - 1) {
      const std::uint32_t row = bucket.rows[std::countr_zero(hits)];
      if (Layout::key(const_cast<const std::byte*>(slab_.row(row))) == key) return row;
    }
    if (bucket.overflow == 0) return kNoRow;
    number = next(number);
  } while (number != home);
  return kNoRow;
}

void Index::insert(SecretHash hash, std::uint32_t row) {
  // More than one split only when the keys share many directory bits.
  while (segment_of(hash)->entries >= entries_max_ && segment_of(hash)->depth < kDirectoryBits) split(hash);
  Segment& segment = *segment_of(hash);
  if (segment.entries == buckets_ * kBucketSlots)
    throw std::length_error("the index is full: more than " + std::to_string(segment.entries) + " keys share " +
                            std::to_string(kDirectoryBits) + " bits of a hash that nobody outside the process knows");
  place(segment, hash, row);
  ++entries_;
}

void Index::place(Segment& segment, SecretHash hash, std::uint32_t row) const {
  for (std::uint32_t number = home_number(hash);; number = next(number)) {
    Bucket& bucket = segment.buckets()[number];
    if (const std::uint32_t empty = matches(bucket, 0); empty != 0) {
      const int slot = std::countr_zero(empty);
      bucket.tags[slot] = tag_of(hash);
      bucket.rows[slot] = row;
      ++segment.entries;
      return;
    }
    if (bucket.overflow != kSticky) ++bucket.overflow;
  }
}

bool Index::erase(SecretHash hash, std::uint32_t row) {
  Segment& segment = *segment_of(hash);
  const std::uint32_t home = home_number(hash);
  std::uint32_t number = home;
  do {
    Bucket& bucket = segment.buckets()[number];
    for (std::uint32_t hits = matches(bucket, tag_of(hash)); hits != 0; hits &= hits - 1) {
      const int slot = std::countr_zero(hits);
      if (bucket.rows[slot] != row) continue;
      bucket.tags[slot] = 0;
      for (std::uint32_t passed = home; passed != number; passed = next(passed)) {
        std::uint8_t& overflow = segment.buckets()[passed].overflow;
        if (overflow != kSticky) --overflow;
      }
      --segment.entries;
      --entries_;
      return true;
    }
    if (bucket.overflow == 0) return false;
    number = next(number);
  } while (number != home);
  return false;
}

void Index::split(SecretHash hash) {
  Segment* old = segment_of(hash);
  if (old->depth == depth_) {  // the directory cannot tell the halves apart yet
    std::vector<Segment*> wider(directory_.size() * 2);
    for (std::size_t i = 0; i < wider.size(); ++i) wider[i] = directory_[i / 2];
    directory_.swap(wider);
    ++depth_;
  }
  const std::uint32_t depth = old->depth + 1;
  moving_.reserve(old->entries);
  Segment* upper = new_segment(depth);  // may throw; nothing has moved so far

  moving_.clear();
  for (std::uint32_t number = 0; number < buckets_; ++number) {
    const Bucket& bucket = old->buckets()[number];
    for (int slot = 0; slot < kBucketSlots; ++slot) {
      if (bucket.tags[slot] == 0) continue;
      moving_.push_back(bucket.rows[slot]);
      __builtin_prefetch(slab_.row(bucket.rows[slot]));
    }
  }
  std::memset(old->buckets(), 0, buckets_ * sizeof(Bucket));
  old->entries = 0;
  old->depth = depth;

  // The directory entries of `old` are one aligned run; its upper half now belongs to the new segment.
  const std::size_t run = std::size_t{1} << (depth_ - depth);
  const std::size_t at = directory_bits(hash) >> (kDirectoryBits - depth_);
  const std::size_t first = at / (2 * run) * (2 * run);
  for (std::size_t i = first + run; i < first + 2 * run; ++i) directory_[i] = upper;

  for (const std::uint32_t row : moving_) {
    const SecretHash moved = secret_hash(Layout::key(slab_.row(row)));
    place(*segment_of(moved), moved, row);
  }
}

void Index::verify(std::vector<std::string>& faults) const {
  std::size_t counted = 0;
  std::unordered_set<const Segment*> seen;
  for (std::size_t i = 0; i < directory_.size(); ++i) {
    const Segment* segment = directory_[i];
    if (!seen.insert(segment).second) continue;
    const std::size_t run = std::size_t{1} << (depth_ - segment->depth);
    const std::span entries(directory_.data() + i, std::min(run, directory_.size() - i));
    const bool whole =
        i % run == 0 && std::ranges::all_of(entries, [=](const Segment* other) { return other == segment; });
    if (!whole) faults.emplace_back("index: a segment does not own the directory entries of its hash bits");
    std::size_t inside = 0;
    for (std::uint32_t number = 0; number < buckets_; ++number)
      inside += kBucketSlots - std::popcount(matches(segment->buckets()[number], 0));
    if (inside != segment->entries)
      faults.push_back("index: a segment counts " + std::to_string(segment->entries) + " entries but holds " +
                       std::to_string(inside));
    counted += inside;
  }
  if (seen.size() != segments_) faults.emplace_back("index: a segment is not in the directory");
  if (counted != entries_)
    faults.push_back("index: counts " + std::to_string(entries_) + " entries but holds " + std::to_string(counted));
}

}  // namespace hotrow::store
