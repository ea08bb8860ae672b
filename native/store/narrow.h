// Values in 16 bits: float16 and bfloat16 rows. Reading widens exactly; every write rounds stochastically, so that
// updates smaller than half a step still move a row by the right amount on average. Compiled per instruction set
// (store/isa/narrow.cpp), with the same bits from each.
//
// Numbers the type can hold stay as they are: subnormals, both zeros, the largest, infinities. A finite number beyond
// the largest becomes the largest, with its sign. A NaN stays a NaN, quiet, with the high bits of its payload.
#pragma once

#include <cstddef>
#include <cstdint>

#include "store/isa.h"

namespace hotrow::store {

enum class RowType : int { float32, float16, bfloat16 };

// Of one row's value. Rounded up to whole words, because the state that follows is float32.
constexpr std::size_t value_bytes(RowType type, std::size_t dim) {
  return type == RowType::float32 ? dim * 4 : (dim * 2 + 3) / 4 * 4;
}

// Both are indexed by RowType; those of float32 are null.
struct NarrowKernels {
  void (*widen[3])(const std::uint16_t* from, float* to, std::size_t dim);
  // Rounds up with the probability that keeps the mean. `stream` and the number of the element decide the random bits:
  // give every write of a row a stream of its own. Returns how many finite elements were beyond the largest number.
  std::size_t (*narrow[3])(const float* from, std::uint16_t* to, std::size_t dim, std::uint64_t stream);
};

HOTROW_KERNELS(NarrowKernels, narrow_kernels)

}  // namespace hotrow::store
