// Vector kernels on single rows: sum, update, first values. Compiled per instruction set (store/isa/rows.cpp), with the
// same bits from each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "store/isa.h"
#include "store/optimizer.h"

namespace hotrow::store {

// Where the gradients of a batch lie. Key i takes row `rows[i]` (or i) of `values`, times `weights[i]` (or 1).
struct Gradients {
  const float* values;
  const float* weights;       // may be null
  const std::uint32_t* rows;  // may be null

  // Always inlined, so that no instruction set's copy of it serves another's.
  __attribute__((always_inline)) const float* row(std::uint32_t key, std::size_t dim) const {
    return values + std::size_t{rows != nullptr ? rows[key] : key} * dim;
  }
};

// One row of an update: where its parts lie, and what differs from row to row.
struct RowUpdate {
  std::byte* row = nullptr;
  float* value = nullptr;  // the row's own, or a copy of a 16-bit one
  float* state = nullptr;
  const float* gradient = nullptr;
  RowTouch touch = {};
};

enum class InitKind : int { uniform, normal, constant };

struct FirstValues {
  InitKind kind;
  float amount;          // bound, standard deviation or the constant itself
  std::uint64_t stream;  // from seed and table
};

struct RowKernels {
  // out[i] = rows[inverse[i]] for i in [begin, end); past the caches where that is asked and can be done
  void (*expand)(float* out, const float* rows, const std::uint32_t* inverse, std::size_t begin, std::size_t end,
                 std::size_t dim, bool past_caches);
  // sums[inverse[i]] += gradient of key i, for i in `keys` in their order
  void (*fold)(float* sums, const Gradients&, const std::uint32_t* inverse, const std::uint32_t* keys,
               std::size_t count, std::size_t dim);
  float (*squared_norm)(const float* values, std::size_t dim);
  void (*add)(float* to, const float* from, std::size_t dim);
  void (*decay)(float* moment, float factor, float floor, std::size_t count);
  // Of many rows at a time: a call for each row took as long as the cache misses of the row.
  void (*squared_norms)(RowUpdate* rows, std::size_t count, std::size_t dim);  // of the gradients, into touch.squares
  void (*update[static_cast<int>(Rule::count)])(const UpdateRule&, const RowUpdate* rows, std::size_t count,
                                                std::size_t dim);
  void (*first_values)(const FirstValues&, std::uint64_t key, float* out, std::size_t dim);
  // The state of a fresh row; FTRL's is such that it stands for the row's first value.
  void (*first_state)(const UpdateRule&, float initial, const float* value, float* state, std::size_t dim);
  // After the value was overwritten: FTRL's state has to stand for the new one, the others' state stays.
  void (*follow_value)(const UpdateRule&, const float* value, float* state, std::size_t dim);
};

HOTROW_KERNELS(RowKernels, row_kernels)

}  // namespace hotrow::store
