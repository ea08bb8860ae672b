// Distinct keys of a batch, their counts and the place of each position: the arrays of unique.py.
//
// A block folds its keys in a table in shared memory, so a frequent key reaches the table of all blocks once per block.
// That table has twice as many entries as the batch has keys and stays in the L2 cache. Compiled at run time; the
// Triton kernels of unique.py compute the same.

typedef unsigned long long u64;
typedef unsigned int u32;

struct __align__(16) Entry {
  u64 key;     // 0: free
  u32 tally;   // positions so far
  u32 number;  // of the key, in the order in which keys were first seen
};

static __device__ __forceinline__ u64 mixed(u64 x, u64 seed, u64 odd) {
  x ^= seed;
  x = (x ^ (x >> 32)) * odd;
  x = (x ^ (x >> 29)) * 0x3F8F1B7A2C5D9E4BULL;
  return x ^ (x >> 32);
}

// A load that may be old and is never wrong where an entry changes once, from free to its key.
static __device__ __forceinline__ u64 seen(const u64* key) { return *static_cast<const volatile u64*>(key); }

// `cursors`: keys so far, positions that were given a place so far. `table` has mask + 1 entries, all zero, and one
// behind them for the key 0. Loads and atomics of a thread's keys do not wait for each other.
extern "C" __global__ void __launch_bounds__(THREADS)
    fold(const u64* __restrict__ keys, Entry* table, u32* cursors, u64* found, u32* place, u32* rank, u32 n, u32 mask,
         u64 seed, u64 odd) {
  __shared__ u64 own_keys[SLOTS + 1];
  __shared__ u32 counts[SLOTS + 1];   // then the rank of the block's first position
  __shared__ u32 entries[SLOTS + 1];  // where the key is in `table`
  __shared__ u32 fresh, first_number;

  for (u32 slot = threadIdx.x; slot <= SLOTS; slot += THREADS) {
    own_keys[slot] = 0;
    counts[slot] = 0;
  }
  if (threadIdx.x == 0) fresh = 0;
  __syncthreads();

  const u32 begin = blockIdx.x * (THREADS * ITEMS) + threadIdx.x;
  u64 key[ITEMS];
  u32 slot[ITEMS], before[ITEMS], entry[ITEMS];
#pragma unroll
  for (int item = 0; item < ITEMS; ++item) {
    const u32 position = begin + item * THREADS;
    key[item] = position < n ? keys[position] : 0;
  }
#pragma unroll
  for (int item = 0; item < ITEMS; ++item) {
    const u64 hash = mixed(key[item], seed, odd);
    u32 at = key[item] == 0 ? SLOTS : static_cast<u32>(hash) & (SLOTS - 1);
    entry[item] = key[item] == 0 ? mask + 1 : static_cast<u32>(hash >> 20) & mask;
    while (key[item] != 0) {
      u64 old = seen(&own_keys[at]);
      if (old == 0) old = atomicCAS(&own_keys[at], 0ULL, key[item]);
      if (old == 0 || old == key[item]) break;
      at = (at + 1) & (SLOTS - 1);
    }
    slot[item] = at;
    before[item] = begin + item * THREADS < n ? atomicAdd(&counts[at], 1) : 1;
  }
  __syncthreads();

  // The first position of each key in the block brings it to the table of all blocks.
  u64 there[ITEMS];
  u32 earlier[ITEMS], number[ITEMS];
#pragma unroll
  for (int item = 0; item < ITEMS; ++item) there[item] = before[item] == 0 ? seen(&table[entry[item]].key) : 0;
#pragma unroll
  for (int item = 0; item < ITEMS; ++item) {
    if (before[item] != 0 || key[item] == 0) continue;
    u64 old = there[item];
    while (old != key[item]) {
      if (old == 0) old = atomicCAS(&table[entry[item]].key, 0ULL, key[item]);
      if (old == 0 || old == key[item]) break;
      entry[item] = (entry[item] + 1) & mask;
      old = seen(&table[entry[item]].key);
    }
  }
#pragma unroll
  for (int item = 0; item < ITEMS; ++item)
    earlier[item] = before[item] == 0 ? atomicAdd(&table[entry[item]].tally, counts[slot[item]]) : 1;
#pragma unroll
  for (int item = 0; item < ITEMS; ++item) {
    number[item] = earlier[item] == 0 ? atomicAdd(&fresh, 1) : 0;
    if (before[item] != 0) continue;
    counts[slot[item]] = earlier[item];
    entries[slot[item]] = entry[item];
  }
  __syncthreads();
  if (threadIdx.x == 0) first_number = atomicAdd(&cursors[0], fresh);
#pragma unroll
  for (int item = 0; item < ITEMS; ++item) {
    const u32 position = begin + item * THREADS;
    if (position >= n) continue;
    place[position] = entries[slot[item]];
    rank[position] = counts[slot[item]] + before[item];
  }
  __syncthreads();
#pragma unroll
  for (int item = 0; item < ITEMS; ++item) {
    if (earlier[item] != 0) continue;
    table[entry[item]].number = first_number + number[item];
    found[first_number + number[item]] = key[item];
  }
}

// From entries to numbers of keys; the first position of a key also writes its count and where its group begins.
extern "C" __global__ void __launch_bounds__(THREADS)
    number(const Entry* __restrict__ table, u32* cursors, const u32* __restrict__ place, const u32* __restrict__ rank,
           u32* counts, u32* starts, u32* inverse, u32 n) {
  __shared__ u32 of_warps[THREADS / 32];
  __shared__ u32 first_place;
  const u32 position = blockIdx.x * THREADS + threadIdx.x;
  Entry entry = {};
  u32 count = 0;
  if (position < n) {
    entry = table[place[position]];
    inverse[position] = entry.number;
    if (rank[position] == 0) count = entry.tally;
  }
  u32 sum = count;
  const u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const u32 other = __shfl_up_sync(~0u, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) of_warps[warp] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    u32 total = 0;
    for (int each = 0; each < THREADS / 32; ++each) {
      const u32 own = of_warps[each];
      of_warps[each] = total;
      total += own;
    }
    first_place = atomicAdd(&cursors[1], total);
  }
  __syncthreads();
  if (count != 0) {
    counts[entry.number] = count;
    starts[entry.number] = first_place + of_warps[warp] + sum - count;
  }
}
