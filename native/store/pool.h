// Pooling of rows over ragged bags, as torch's EmbeddingBag: forward, gradient of the rows, gradient of the weights.
//
// A position p of the batch names row inverse[p] (see unique.h) and may carry a weight; bag b is the sum or the mean of
// its positions, and zeros when it has none. Sums run in the order of positions, in float32, without fused
// multiply-add, so every instruction set and every number of threads gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "store/isa.h"

namespace hotrow::store {

enum class PoolMode { sum, mean };

// The ids of a batch. With mean there are no weights: torch defines none either, and so the caller is refused.
struct PooledIds {
  std::span<const std::uint32_t> inverse;
  std::span<const std::int64_t> offsets;  // bags + 1
  const float* weights;                   // one per position, or null

  std::size_t bags() const { return offsets.size() - 1; }
};

// A copy of offsets and inverse, good until this thread's next call. Throws std::invalid_argument, in a sentence that
// begins with `who`, unless they fit `rows` rows. The calls below trust their ids.
PooledIds checked_ids(const char* who, const PooledIds& ids, std::size_t rows);

// out[bag] from rows[unique].
void pool(const float* rows, std::size_t dim, const PooledIds& ids, PoolMode mode, float* out, int threads);

// out[unique] from grad_out[bag]; a row that no position names gets zeros. Positions are brought together by row first,
// so that each row is summed by one thread.
void pool_backward(const float* grad_out, std::size_t dim, const PooledIds& ids, PoolMode mode, std::size_t unique,
                   float* out, int threads);

// out[position] = grad_out[its bag] . rows[its row]: the gradient of the weights of a sum.
void pool_weight_gradient(const float* grad_out, const float* rows, std::size_t dim, const PooledIds& ids, float* out,
                          int threads);

struct PoolKernels {
  // For every bag in [begin, end): out[bag] = sum of weight * rows[index[p]], divided by its length if `mean`.
  void (*sum)(const float* rows, std::size_t dim, const std::uint32_t* index, const std::int64_t* offsets,
              const float* weights, bool mean, std::size_t begin, std::size_t end, float* out);
  void (*dot)(const float* grad_out, const float* rows, std::size_t dim, const std::uint32_t* index,
              const std::int64_t* offsets, std::size_t begin, std::size_t end, float* out);
};

HOTROW_KERNELS(PoolKernels, pool_kernels)

}  // namespace hotrow::store
