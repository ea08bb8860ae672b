// Arrays at the border: contiguous, aligned, in host memory, of exactly one type; and the sentences for shapes that do
// not fit.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bind/bind.h"

namespace hotrow::bind {

template <typename T, int dims>
using PlainArray = nb::ndarray<T, nb::ndim<dims>, nb::c_contig, nb::device::cpu>;

// A PlainArray whose elements lie at multiples of their size, which numpy does not promise and compiled loops rely on.
template <typename T, int dims>
struct HostArray : PlainArray<T, dims> {
  HostArray() = default;
  explicit HostArray(PlainArray<T, dims> array) : PlainArray<T, dims>(std::move(array)) {}
  bool aligned() const { return reinterpret_cast<std::uintptr_t>(this->data()) % alignof(T) == 0; }
};

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

inline void check_threads(int threads) {
  demand(threads >= 1 && threads <= kThreadsMax,
         "threads=" + std::to_string(threads) + ": must be from 1 to " + std::to_string(kThreadsMax));
}

// "pool: out is (2, 3), expected (2, 4)"
template <typename Array>
void check_shape(const std::string& what, const Array& array, const std::vector<std::size_t>& expected) {
  std::vector<std::size_t> found;
  for (std::size_t axis = 0; axis < array.ndim(); ++axis) found.push_back(array.shape(axis));
  if (found == expected) return;
  throw nb::value_error((what + " is " + shape_text(found) + ", expected " + shape_text(expected)).c_str());
}

}  // namespace hotrow::bind

namespace nanobind::detail {

template <typename T, int dims>
struct type_caster<hotrow::bind::HostArray<T, dims>> {
  using Array = hotrow::bind::HostArray<T, dims>;
  using Plain = make_caster<hotrow::bind::PlainArray<T, dims>>;
  // In signatures and in the stub: NDArray[numpy.float32]. Layout and shape would fill lines, and are alike everywhere.
  NB_TYPE_CASTER(Array, const_name("ndarray[dtype=") + dtype_traits<std::remove_const_t<T>>::name + const_name("]"))

  bool from_python(handle source, uint32_t flags, cleanup_list* cleanup) noexcept {
    Plain plain;
    if (!plain.from_python(source, flags, cleanup)) return false;
    value = Array(std::move(plain.value));
    return value.aligned();
  }
};

}  // namespace nanobind::detail
