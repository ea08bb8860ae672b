// One thread: open addressing with 4-byte slots that name a unique key, at most half full, homes prefetched kAhead keys
// ahead. "Is it new" and "is it the key in its home slot" are one comparison without a branch: the key is written
// behind the unique ones first, and an empty slot stands for that place. Only a collision branches, and it is rare.
// An empty slot ends a probe in any case: `unique_keys` may be the caller's memory, where another thread may write
// meanwhile, and the slots are this call's own. So a probe visits each slot at most once.
//
// The comparison has no branch because `fresh` is hidden from the compiler, which made one of it again: a new key is
// what nothing predicts. It costs 0.67 times as much for 106,496 ids and 0.95 times for 1,703,936 (interleaved,
// medians).
//
// Measured interleaved before that, one thread of a 2.8 GHz Xeon (1.25 MB L2), Zipf 1.05 over 10 M keys, median M ids/s
// for 106,496 / 1,703,936 ids (the machine itself moves by 1.4x):
//   this                                       105 / 47    (best 142 / 70)
//   blocks of 16 hashed, then probed            83 / 44
//   slots that name the first position          74 / 39
//   16-byte slots with key and count            73 / 47
//   small table that grows and rehashes         67 / 43
//   radix partition into 16 parts first         49 / 29
//
// Many threads: each takes the keys whose hash falls to it, deduplicates them as above, and the parts are numbered
// together by the position at which each key first occurs. Together they work twice to three times as long as one alone
// (9.7 ns per id become 18 with 2 threads, 33 with 4, 37 with 8), so fewer than kPartsMin are not worth calling.
#include "store/unique.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "store/indices.h"
#include "store/parallel.h"
#include "store/scratch.h"

namespace hotrow::store {
namespace {

constexpr std::size_t kAhead = 16;             // keys between prefetch and probe; a power of two
constexpr std::uint32_t kEmpty = 0xffffffffu;  // a slot nobody has taken
constexpr std::size_t kKeysPerPart = std::size_t{1} << 15;
constexpr std::size_t kPartsMin = 4;
constexpr int kPartsMax = 16;  // every part reads all keys, so more would not help

std::size_t unique_serial(std::span<const Key> keys, Key* unique_keys, std::uint32_t* inverse, std::uint32_t* counts,
                          Scratch<std::uint32_t>& scratch) {
  const std::size_t size = keys.size();
  const int bits = std::max(8, static_cast<int>(std::bit_width(2 * size)));
  const std::size_t mask = (std::size_t{1} << bits) - 1;
  std::uint32_t* const slots = scratch.take(mask + 1);
  std::memset(slots, 0xff, (mask + 1) * sizeof(std::uint32_t));

  // A key is read once: with one value hashed and another stored, it would stand among the unique ones twice.
  Key pending[kAhead];
  std::size_t homes[kAhead];
  const auto look_ahead = [&](std::size_t i) {
    const Key key = read_once(keys[i]);
    const std::size_t home = secret_hash(key).bits >> (64 - bits);
    pending[i % kAhead] = key;
    homes[i % kAhead] = home;
    __builtin_prefetch(&slots[home], 1);
  };
  for (std::size_t i = 0; i < std::min(kAhead, size); ++i) look_ahead(i);

  std::size_t found = 0;
  for (std::size_t i = 0; i < size; ++i) {
    std::size_t slot = homes[i % kAhead];
    const Key key = pending[i % kAhead];
    if (i + kAhead < size) look_ahead(i + kAhead);
    unique_keys[found] = key;
    counts[found] = 0;
    for (;; slot = (slot + 1) & mask) {
      std::uint32_t fresh = slots[slot] == kEmpty ? ~0u : 0;  // all bits set: the key is new
      asm("" : "+r"(fresh));                                  // the compiler would branch on it, which nothing predicts
      const std::uint32_t index = (slots[slot] & ~fresh) | (static_cast<std::uint32_t>(found) & fresh);
      if (unique_keys[index] != key && fresh == 0) [[unlikely]]
        continue;
      slots[slot] = index;
      inverse[i] = index;
      ++counts[index];
      found += fresh & 1;
      break;
    }
  }
  return found;
}

// What one part of the hash space holds. The buffers have room for every key, but only what is used is ever touched.
struct Part {
  struct Buffers {
    Scratch<Key> keys, unique_keys;
    Scratch<std::uint32_t> positions, inverse, counts, first, slots;
  };
  Key *keys, *unique_keys;
  std::uint32_t *positions, *inverse, *counts;
  std::uint32_t* first;  // unique key -> the position at which it first occurs, later its number among all parts
  std::size_t size = 0, found = 0;

  void gather(std::span<const Key> all, std::size_t part, std::size_t parts, Buffers& buffers) {
    keys = buffers.keys.take(all.size());
    positions = buffers.positions.take(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      keys[size] = all[i];
      positions[size] = static_cast<std::uint32_t>(i);
      size +=
          ((secret_hash(all[i]).bits & 0xffffffffu) * parts >> 32) == part;  // low bits: the slot takes the high ones
    }
  }

  // Marks in `is_first` where a key occurs first. A position belongs to one part, so no two parts write the same.
  void deduplicate(std::uint32_t* is_first, Buffers& buffers) {
    unique_keys = buffers.unique_keys.take(size);
    inverse = buffers.inverse.take(size);
    counts = buffers.counts.take(size);
    first = buffers.first.take(size);
    found = unique_serial({keys, size}, unique_keys, inverse, counts, buffers.slots);
    for (std::size_t i = 0, next = 0; i < size; ++i) {
      const bool fresh = inverse[i] == next;
      if (fresh) first[next++] = positions[i];
      is_first[positions[i]] = fresh;
    }
  }

  void number(const std::uint32_t* ranks, Key* all_unique, std::uint32_t* all_inverse,
              std::uint32_t* all_counts) const {
    for (std::size_t u = 0; u < found; ++u) {
      first[u] = ranks[first[u]];
      all_unique[first[u]] = unique_keys[u];
      all_counts[first[u]] = counts[u];
    }
    for (std::size_t i = 0; i < size; ++i) all_inverse[positions[i]] = first[inverse[i]];
  }
};

// Turns marks into how many came before: the number of the key that first occurs there. Returns how many there are.
std::size_t rank(std::uint32_t* marks, std::size_t size) {
  std::uint32_t before = 0;
  for (std::size_t i = 0; i < size; ++i) before += std::exchange(marks[i], before);
  return before;
}

std::size_t unique_parallel(std::span<const Key> theirs, Key* unique_keys, std::uint32_t* inverse,
                            std::uint32_t* counts, int threads) {
  thread_local Part::Buffers buffers[kPartsMax];
  thread_local Scratch<Key> keys_scratch;
  thread_local Scratch<std::uint32_t> marks;
  Key* const keys = keys_scratch.take(theirs.size());  // a copy: every part must see the same keys
  const std::size_t size = theirs.size(), parts_count = static_cast<std::size_t>(threads);
  std::uint32_t* const ranks = marks.take(size);
  Part::Buffers* const mine = buffers;  // the caller's, whichever thread runs a task
  Part parts[kPartsMax];
  parallel_for(threads, parts_count, [&](std::size_t p) {
    const std::size_t begin = size * p / parts_count, end = size * (p + 1) / parts_count;
    std::copy_n(theirs.data() + begin, end - begin, keys + begin);
  });
  parallel_for(threads, parts_count, [&](std::size_t p) {
    parts[p].gather({keys, size}, p, parts_count, mine[p]);
    parts[p].deduplicate(ranks, mine[p]);
  });
  const std::size_t found = rank(ranks, size);
  parallel_for(threads, parts_count, [&](std::size_t p) { parts[p].number(ranks, unique_keys, inverse, counts); });
  return found;
}

}  // namespace

std::size_t unique(std::span<const Key> keys, Key* unique_keys, std::uint32_t* inverse, std::uint32_t* counts,
                   int threads) {
  const auto parts = std::min<std::size_t>(std::min(threads, kPartsMax), keys.size() / kKeysPerPart);
  if (parts >= kPartsMin) return unique_parallel(keys, unique_keys, inverse, counts, static_cast<int>(parts));
  thread_local Scratch<std::uint32_t> slots;
  return unique_serial(keys, unique_keys, inverse, counts, slots);
}

}  // namespace hotrow::store
