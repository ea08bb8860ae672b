// Indices that a caller owns. Another thread of the caller may write to them while a call runs, so an index that was
// checked in the caller's array need not be the one that is used: what decides where memory is touched is read once, or
// copied before it is checked. The same holds for outputs: what a call has written there is never read back to decide
// where memory is touched or when a loop ends. A race then gives any values, and never an access out of bounds.
#pragma once

#include <algorithm>
#include <span>

#include "store/scratch.h"

namespace hotrow::store {

// One load, which the compiler may neither repeat nor split.
template <typename T>
T read_once(const T& value) {
  return __atomic_load_n(&value, __ATOMIC_RELAXED);
}

// The values as they stand now, in `room` until it is taken again.
template <typename T>
std::span<const T> copied(std::span<const T> values, Scratch<T>& room) {
  T* const copy = room.take(values.size());
  std::copy_n(values.data(), values.size(), copy);
  return {copy, values.size()};
}

}  // namespace hotrow::store
