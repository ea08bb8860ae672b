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
// Many threads: keys are brought together by part (scatter.h), each part is folded as above while it lies in a cache,
// and the parts are numbered together by the position at which each key first occurs. All threads together work twice
// as long as one alone for 106,496 ids, and no longer than it for 851,968, whose slots leave its cache. Measured on 16
// cores of one machine, Zipf 1.05 over 10 M keys, as the plan of a batch (batch.cpp), medians in ms by threads:
//             1     4     8     16
//   106,496   1.4   0.75  0.40  0.32     before, every thread looking at every key: 1.4, 1.5, 1.5, 1.1 to 2.6
//   851,968   20    4.7   2.5   2.1                                                 20, 12 to 23, 10 to 27, 9 to 27
#include "store/unique.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "store/indices.h"
#include "store/parallel.h"
#include "store/scatter.h"
#include "store/scratch.h"

namespace hotrow::store {
namespace {

constexpr std::size_t kAhead = 16;             // keys between prefetch and probe; a power of two
constexpr std::uint32_t kEmpty = 0xffffffffu;  // a slot nobody has taken
constexpr std::size_t kParts = 64;             // of a batch that many threads fold
constexpr std::size_t kKeysPerThread = 4096;
constexpr std::size_t kManyKeys = std::size_t{3} << 18;  // from here on two threads are faster than one, else three

// The parts of a batch, folded by themselves and then numbered together by where each key first occurs.
std::size_t unique_parallel(std::span<const Key> theirs, Key* unique_keys, std::uint32_t* inverse,
                            std::uint32_t* counts, int threads) {
  thread_local ScatteredKeys::Buffers buffers;
  thread_local Scratch<std::uint32_t> local_room, counts_room, numbers_room;
  const ScatteredKeys scattered(theirs, kParts, threads, buffers, [](Key key) {
    return secret_hash(key).bits & (kParts - 1);  // low bits: the slot takes the high ones
  });
  std::uint32_t* const local = local_room.take(theirs.size());      // number of a key in its part
  std::uint32_t* const occurs = counts_room.take(theirs.size());    // how often, by part and number
  std::uint32_t* const numbers = numbers_room.take(theirs.size());  // number in the batch, by part and number
  const std::size_t chunks = scattered.chunks();
  std::vector<std::uint32_t> known(kParts * chunks);  // keys of a part that occur before a chunk
  const std::vector<std::uint32_t> order = scattered.largest_first();
  parallel_for(threads, kParts, [&](std::size_t task) {
    thread_local Scratch<std::uint32_t> slots;
    const std::size_t part = order[task], begin = scattered.begin(part);
    Key* const keys = scattered.keys + begin;
    unique_serial({keys, scattered.size(part)}, keys, local + begin, occurs + begin, slots);
    std::uint32_t found = 0;
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
      known[part * chunks + chunk] = found;
      for (std::size_t at = scattered.begin(part, chunk); at < scattered.begin(part, chunk + 1); ++at)
        found = std::max(found, local[at] + 1);
    }
  });

  // A key is first met in a chunk if its number is the next one of its part.
  const auto first_met = [&](std::size_t chunk, auto visit) {
    std::uint32_t next[kScatterPartsMax];
    for (std::size_t part = 0; part < kParts; ++part) next[part] = known[part * chunks + chunk];
    scattered.walk(chunk, [&](std::size_t, std::size_t part, std::uint32_t at) {
      if (local[at] != next[part]) return;
      ++next[part];
      visit(scattered.begin(part) + local[at]);
    });
  };
  std::vector<std::uint32_t> before(chunks + 1);  // keys first met before a chunk
  parallel_for(threads, chunks, [&](std::size_t chunk) {
    std::uint32_t met = 0;
    first_met(chunk, [&](std::size_t) { ++met; });
    before[chunk + 1] = met;
  });
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) before[chunk + 1] += before[chunk];
  parallel_for(threads, chunks, [&](std::size_t chunk) {
    std::uint32_t number = before[chunk];
    first_met(chunk, [&](std::size_t at) {
      unique_keys[number] = scattered.keys[at];
      counts[number] = occurs[at];
      numbers[at] = number++;
    });
  });
  parallel_for(threads, chunks, [&](std::size_t chunk) {
    scattered.walk(chunk, [&](std::size_t i, std::size_t part, std::uint32_t at) {
      inverse[i] = numbers[scattered.begin(part) + local[at]];
    });
  });
  return before[chunks];
}

}  // namespace

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

int folding_threads(std::size_t keys, int threads) {
  const auto worth = std::min<std::size_t>(static_cast<std::size_t>(std::max(threads, 1)), keys / kKeysPerThread);
  return worth >= (keys < kManyKeys ? 3 : 2) ? static_cast<int>(worth) : 1;
}

std::size_t unique(std::span<const Key> keys, Key* unique_keys, std::uint32_t* inverse, std::uint32_t* counts,
                   int threads) {
  if (const int worth = folding_threads(keys.size(), threads); worth > 1)
    return unique_parallel(keys, unique_keys, inverse, counts, worth);
  thread_local Scratch<std::uint32_t> slots;
  return unique_serial(keys, unique_keys, inverse, counts, slots);
}

}  // namespace hotrow::store
