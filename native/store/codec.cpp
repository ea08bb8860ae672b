#include "store/codec.h"

#include <algorithm>
#include <cfenv>
#include <stdexcept>
#include <string>

#include "store/bags.h"
#include "store/indices.h"
#include "store/parallel.h"
#include "store/scratch.h"
#include "store/unique.h"

namespace hotrow::store {
namespace {

constexpr std::size_t kTaskElements = std::size_t{1} << 15;

// Programs may ask their processor to flush denormals (torch.set_flush_denormal); a row of denormals must survive that.
// The kernels are called through a pointer, so none of their arithmetic can move across.
class DefaultArithmetic {
 public:
  DefaultArithmetic() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultArithmetic() { std::fesetenv(&before_); }
  DefaultArithmetic(const DefaultArithmetic&) = delete;
  DefaultArithmetic& operator=(const DefaultArithmetic&) = delete;

 private:
  std::fenv_t before_;
};

template <typename Body>
void over_rows(std::size_t count, std::size_t dim, int threads, Body body) {
  const std::size_t rows_per_task = std::max<std::size_t>(1, kTaskElements / dim);
  parallel_for(threads, (count + rows_per_task - 1) / rows_per_task, [&](std::size_t task) {
    const DefaultArithmetic here;
    const std::size_t begin = task * rows_per_task;
    body(begin, std::min(rows_per_task, count - begin));
  });
}

}  // namespace

void encode_rows(const float* rows, std::size_t count, std::size_t dim, Half* half, float* scale, int threads) {
  const auto kernel = codec_kernels().encode;
  over_rows(count, dim, threads, [&](std::size_t begin, std::size_t some) {
    kernel(rows + begin * dim, some, dim, half + begin * dim, scale + begin);
  });
}

void decode_rows(const Half* half, const float* scale, std::size_t count, std::size_t dim, float* rows, int threads) {
  const auto kernel = codec_kernels().decode;
  over_rows(count, dim, threads, [&](std::size_t begin, std::size_t some) {
    kernel(half + begin * dim, scale + begin, some, dim, rows + begin * dim);
  });
}

template <typename Sample>
std::size_t compress_ids(std::span<const Key> keys, std::span<const std::int64_t> offsets, Key* unique_keys,
                         std::uint32_t* counts, Sample* samples, int threads) {
  thread_local Scratch<std::uint32_t> inverse_scratch, counts_scratch;
  thread_local Scratch<std::int64_t> cursor_scratch, offsets_scratch;
  const std::span<const std::int64_t> own_offsets = copied(offsets, offsets_scratch);
  check_offsets("compress_ids", own_offsets, keys.size());
  std::uint32_t* const inverse = inverse_scratch.take(keys.size());
  std::uint32_t* const own_counts = counts_scratch.take(keys.size());
  const std::size_t found = unique(keys, unique_keys, inverse, own_counts, threads);
  std::copy_n(own_counts, found, counts);
  std::int64_t* const cursor = cursor_scratch.take(found);
  std::int64_t begin = 0;
  for (std::size_t u = 0; u < found; begin += own_counts[u++]) cursor[u] = begin;
  group_positions(own_offsets, inverse, cursor,
                  [samples](std::size_t to, std::size_t bag, std::size_t) { samples[to] = static_cast<Sample>(bag); });
  return found;
}

template <typename Sample>
void expand_ids(std::span<const Key> unique_keys, std::span<const std::uint32_t> their_counts,
                std::span<const Sample> their_samples, std::size_t bags, Key* keys, std::int64_t* offsets) {
  thread_local Scratch<std::uint32_t> counts_scratch;
  thread_local Scratch<Sample> samples_scratch;
  const std::span<const std::uint32_t> counts = copied(their_counts, counts_scratch);
  const std::span<const Sample> samples = copied(their_samples, samples_scratch);
  std::uint64_t occurrences = 0;
  for (const std::uint32_t count : counts) occurrences += count;
  if (occurrences != samples.size())
    throw std::invalid_argument("expand_ids: counts add up to " + std::to_string(occurrences) +
                                ": must be the number of samples, " + std::to_string(samples.size()));
  Sample largest = 0;
  for (const Sample sample : samples) largest = std::max(largest, sample);
  if (!samples.empty() && largest >= bags)
    throw std::invalid_argument("expand_ids: samples hold " + std::to_string(largest) + ": must be below bags, " +
                                std::to_string(bags));

  // Counted one place up: after the sums, cursor[b] is where bag b begins.
  thread_local Scratch<std::int64_t> cursor_scratch;
  std::int64_t* const cursor = cursor_scratch.take(bags + 1);
  std::fill_n(cursor, bags + 1, 0);
  for (const Sample sample : samples) ++cursor[std::size_t{sample} + 1];
  for (std::size_t bag = 0; bag < bags; ++bag) cursor[bag + 1] += cursor[bag];
  std::copy_n(cursor, bags + 1, offsets);
  const Sample* sample = samples.data();
  for (std::size_t u = 0; u < unique_keys.size(); ++u)
    for (std::uint32_t left = counts[u]; left > 0; --left) keys[cursor[*sample++]++] = unique_keys[u];
}

template std::size_t compress_ids(std::span<const Key>, std::span<const std::int64_t>, Key*, std::uint32_t*,
                                  std::uint16_t*, int);
template std::size_t compress_ids(std::span<const Key>, std::span<const std::int64_t>, Key*, std::uint32_t*,
                                  std::uint32_t*, int);
template void expand_ids(std::span<const Key>, std::span<const std::uint32_t>, std::span<const std::uint16_t>,
                         std::size_t, Key*, std::int64_t*);
template void expand_ids(std::span<const Key>, std::span<const std::uint32_t>, std::span<const std::uint32_t>,
                         std::size_t, Key*, std::int64_t*);

}  // namespace hotrow::store
