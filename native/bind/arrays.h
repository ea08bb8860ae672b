// Arrays at the border: contiguous, in host memory, of exactly one type; and the sentences for shapes that do not fit.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bind/bind.h"

namespace hotrow::bind {

template <typename T, int dims>
using HostArray = nb::ndarray<T, nb::ndim<dims>, nb::c_contig, nb::device::cpu>;

template <typename Array>
auto span_of(const Array& array) {
  return std::span(array.data(), array.size());
}

inline std::string shape_text(const std::vector<std::size_t>& sizes) {
  std::string text;
  for (const std::size_t size : sizes) text += (text.empty() ? "(" : ", ") + std::to_string(size);
  return text + (sizes.size() == 1 ? ",)" : ")");
}

inline void demand(bool held, const std::string& sentence) {
  if (!held) throw nb::value_error(sentence.c_str());
}

constexpr int kThreadsMax = 1024;

inline void demand_threads(int threads) {
  demand(threads >= 1 && threads <= kThreadsMax,
         "threads=" + std::to_string(threads) + ": must be from 1 to " + std::to_string(kThreadsMax));
}

// "pool: out is (2, 3), expected (2, 4)"
template <typename Array>
void demand_shape(const std::string& what, const Array& array, const std::vector<std::size_t>& expected) {
  std::vector<std::size_t> found;
  for (std::size_t axis = 0; axis < array.ndim(); ++axis) found.push_back(array.shape(axis));
  if (found == expected) return;
  throw nb::value_error((what + " is " + shape_text(found) + ", expected " + shape_text(expected)).c_str());
}

}  // namespace hotrow::bind
