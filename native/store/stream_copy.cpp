#include "store/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace hotrow::store {

#if defined(__SSE2__)
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kAhead = 4096;  // bytes: hardware prefetchers stop at the end of a 4 KB page
constexpr std::size_t kVectors = kLine / sizeof(__m128i);

// A whole line is written at once, so that it leaves the write-combining buffer in one piece.
void stream_line(std::byte* to, const std::byte* from) {
  __m128i line[kVectors];
  for (std::size_t i = 0; i < kVectors; ++i) line[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from) + i);
  for (std::size_t i = 0; i < kVectors; ++i) _mm_stream_si128(reinterpret_cast<__m128i*>(to) + i, line[i]);
}

}  // namespace

void stream_copy(std::byte* to, const std::byte* from, std::size_t size) {
  const std::size_t head = std::min(size, (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine);
  if (head > 0) std::memcpy(to, from, head);
  std::size_t at = head;
  for (; at + kAhead + kLine <= size; at += kLine) {
    _mm_prefetch(reinterpret_cast<const char*>(from + at + kAhead), _MM_HINT_T0);
    stream_line(to + at, from + at);
  }
  for (; at + kLine <= size; at += kLine) stream_line(to + at, from + at);
  if (at < size) std::memcpy(to + at, from + at, size - at);
  _mm_sfence();  // these stores are not ordered with later ones otherwise
}
#else
void stream_copy(std::byte* to, const std::byte* from, std::size_t size) {
  if (size > 0) std::memcpy(to, from, size);
}
#endif

}  // namespace hotrow::store
