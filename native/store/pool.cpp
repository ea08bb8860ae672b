#include "store/pool.h"

#include <algorithm>

#include "store/bags.h"
#include "store/indices.h"
#include "store/parallel.h"
#include "store/scratch.h"

namespace hotrow::store {
namespace {

constexpr std::size_t kTaskPositions = 2048;  // enough work that handing out a task does not show

// Runs body(begin, end) over ranges of bags that hold about as many positions each, since bags differ in length.
template <typename Body>
void over_bags(std::span<const std::int64_t> offsets, int threads, Body body) {
  const std::size_t bags = offsets.size() - 1;
  const auto work = [&](std::size_t bag) { return static_cast<std::size_t>(offsets[bag]) + bag; };
  const std::size_t tasks = threads == 1 ? 1 : work(bags) / kTaskPositions + 1;
  const auto first_bag = [&](std::size_t task) {  // the first bag with at least this share of the work before it
    std::size_t low = 0, high = bags;
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (work(middle) < work(bags) * task / tasks)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  };
  parallel_for(threads, tasks,
               [&](std::size_t task) { body(first_bag(task), task + 1 == tasks ? bags : first_bag(task + 1)); });
}

}  // namespace

PooledIds checked_ids(const char* who, const PooledIds& ids, std::size_t rows) {
  thread_local Scratch<std::uint32_t> inverse_scratch;
  thread_local Scratch<std::int64_t> offsets_scratch;
  const PooledIds own{copied(ids.inverse, inverse_scratch), copied(ids.offsets, offsets_scratch), ids.weights};
  check_offsets(who, own.offsets, own.inverse.size());
  check_below(who, "inverse", own.inverse, rows);
  return own;
}

void pool(const float* rows, std::size_t dim, const PooledIds& ids, PoolMode mode, float* out, int threads) {
  const auto kernel = pool_kernels().sum;
  over_bags(ids.offsets, threads, [&](std::size_t begin, std::size_t end) {
    kernel(rows, dim, ids.inverse.data(), ids.offsets.data(), ids.weights, mode == PoolMode::mean, begin, end, out);
  });
}

// The transposed ids: a row is a bag of the places its gradient comes from, so the forward kernel does the summing.
void pool_backward(const float* grad_out, std::size_t dim, const PooledIds& ids, PoolMode mode, std::size_t unique,
                   float* out, int threads) {
  thread_local Scratch<std::int64_t> offsets_scratch;
  thread_local Scratch<std::uint32_t> bags_scratch;
  thread_local Scratch<float> weights_scratch;
  const std::size_t positions = ids.inverse.size();
  const bool weighted = ids.weights != nullptr || mode == PoolMode::mean;
  std::int64_t* const offsets = offsets_scratch.take(unique + 2);
  std::uint32_t* const bags = bags_scratch.take(positions);
  float* const weights = weighted ? weights_scratch.take(positions) : nullptr;

  // Counted two places up: after the sums, offsets[u + 1] is where u begins, and the sort moves it to where u ends.
  std::fill_n(offsets, unique + 2, 0);
  for (const std::uint32_t row : ids.inverse) ++offsets[row + 2];
  for (std::size_t row = 2; row < unique + 2; ++row) offsets[row] += offsets[row - 1];
  group_positions(ids.offsets, ids.inverse.data(), offsets + 1, [&](std::size_t to, std::size_t bag, std::size_t at) {
    bags[to] = static_cast<std::uint32_t>(bag);
    if (ids.weights != nullptr)
      weights[to] = ids.weights[at];
    else if (weighted)
      weights[to] = 1.0f / static_cast<float>(ids.offsets[bag + 1] - ids.offsets[bag]);
  });

  const auto kernel = pool_kernels().sum;
  over_bags({offsets, unique + 1}, threads, [&](std::size_t begin, std::size_t end) {
    kernel(grad_out, dim, bags, offsets, weights, false, begin, end, out);
  });
}

void pool_weight_gradient(const float* grad_out, const float* rows, std::size_t dim, const PooledIds& ids, float* out,
                          int threads) {
  const auto kernel = pool_kernels().dot;
  over_bags(ids.offsets, threads, [&](std::size_t begin, std::size_t end) {
    kernel(grad_out, rows, dim, ids.inverse.data(), ids.offsets.data(), begin, end, out);
  });
}

}  // namespace hotrow::store
