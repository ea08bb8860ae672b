// 16-bit values. Elements are independent and nearly all of it is done in integers, so every instruction set gives the
// same bits. See store/isa.h for what may not be used here.
#include "store/narrow.h"

#include "store/isa/width.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

#define HOTROW_INLINE inline __attribute__((always_inline))

namespace hotrow::store::HOTROW_ISA {
namespace {

// Neighbouring elements. Left to itself the compiler makes branches of the choices below, and then no vectors.
template <int width>
struct Vector {
  typedef float Floats __attribute__((vector_size(width * 4)));
  typedef std::int32_t Ints __attribute__((vector_size(width * 4)));
  typedef std::uint32_t Bits __attribute__((vector_size(width * 4)));
  typedef std::uint16_t Halves __attribute__((vector_size(width * 2)));
};

// 32 random bits for each element of a row, from a 64-bit stream. The stream is mixed once (the finalizer of
// SplitMix64), so that any distinct numbers will do; its halves then key a 32-bit mixer of two multiplications, which
// vectors can compute. The second half enters in the middle: rows whose first halves lie close together would otherwise
// see the same bits a few elements apart. How good they are: flipping any bit of the stream or of the element's number
// flips each of the upper 16 bits half of the time, to within what the tests can see. Enough to round by; no cipher.
struct RandomBits {
  std::uint32_t start, middle;

  explicit HOTROW_INLINE RandomBits(std::uint64_t stream) {
    std::uint64_t z = stream + 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    start = static_cast<std::uint32_t>(z);
    middle = static_cast<std::uint32_t>(z >> 32);
  }

  template <typename Bits>
  HOTROW_INLINE Bits operator()(Bits element) const {
    Bits h = element + start;
    h = (h ^ h >> 16) * 0x21f0aaadu;
    h = ((h ^ h >> 15) + middle) * 0x735a2d97u;
    return h ^ h >> 15;
  }
};

// A type says its largest number in the bits of a float, and its infinity and quiet NaN in its own; `cut` gives the 16
// bits of a finite number up to the largest. Everything is without sign, where bits order as the numbers do.
//
// A random number below one step is added and what is less than a step is cut off: so x goes up with the probability
// (x - lower) / step, and a number on a step stays. Nothing below the largest can get beyond it.
struct Float16 {
  static constexpr std::int32_t largest = 0x477fe000;  // 65504
  static constexpr std::int32_t infinity = 0x7c00, quiet = 0x7e00, payload = 0x3ff;
  static constexpr int shift = 13;

  template <typename V>
  HOTROW_INLINE static typename V::Ints cut(typename V::Ints size, typename V::Bits random) {
    using Ints = typename V::Ints;
    using Floats = typename V::Floats;
    constexpr std::int32_t normal = 0x38800000;  // 2^-14
    const Ints from_normal = (size - 0x38000000 + (Ints)(random >> 19)) >> 13;
    // Below 2^-14 the steps are 2^-24 wide. Whole steps are exact, and from 2^-32 up so is the rest in units of 2^-31
    // steps; the mean of smaller numbers comes out low, by less than 2^-55.
    const Floats steps = (Floats)(size < normal ? size : Ints{}) * 0x1p24f;
    const Ints whole = __builtin_convertvector(steps, Ints);
    const Ints rest = __builtin_convertvector((steps - __builtin_convertvector(whole, Floats)) * 0x1p31f, Ints);
    const Ints up = (Ints)(((typename V::Bits)rest + (random >> 1)) >> 31);
    return size < normal ? whole + up : from_normal;
  }
};

struct BFloat16 {
  static constexpr std::int32_t largest = 0x7f7f0000;
  static constexpr std::int32_t infinity = 0x7f80, quiet = 0x7fc0, payload = 0x7f;
  static constexpr int shift = 16;

  template <typename V>
  HOTROW_INLINE static typename V::Ints cut(typename V::Ints size, typename V::Bits random) {
    return (size + (typename V::Ints)(random >> 16)) >> 16;  // subnormals have their steps in the same bits
  }
};

// A row, as far as it is done.
struct Progress {
  const float* from;
  std::uint16_t* to;
  std::size_t at, dim, beyond;
};

template <typename Type, int width>
HOTROW_INLINE void narrow_blocks(Progress& row, const RandomBits& random) {
  using V = Vector<width>;
  using Ints = typename V::Ints;
  if (row.at + width > row.dim) return;
  typename V::Bits element;
  for (int lane = 0; lane < width; ++lane) element[lane] = static_cast<std::uint32_t>(row.at) + lane;
  Ints beyond = {};
  for (; row.at + width <= row.dim; row.at += width, element += width) {
    Ints bits;
    __builtin_memcpy(&bits, row.from + row.at, sizeof bits);
    const Ints size = bits & 0x7fffffff;
    const Ints finite = Type::template cut<V>(size < Type::largest ? size : Ints{} + Type::largest, random(element));
    const Ints nan = Type::quiet | (size >> Type::shift & Type::payload);
    const Ints other = size > 0x7f800000 ? nan : Ints{} + Type::infinity;
    const Ints result = (size < 0x7f800000 ? finite : other) | (bits >> 16 & 0x8000);
    const auto halves = __builtin_convertvector(result, typename V::Halves);
    __builtin_memcpy(row.to + row.at, &halves, sizeof halves);
    beyond -= (size > Type::largest) & (size < 0x7f800000);
  }
  for (int lane = 0; lane < width; ++lane) row.beyond += static_cast<std::size_t>(beyond[lane]);
}

template <typename Type>
std::size_t narrow(const float* from, std::uint16_t* to, std::size_t dim, std::uint64_t stream) {
  const RandomBits random(stream);
  Progress row{from, to, 0, dim, 0};
  if constexpr (kWidth >= 16) narrow_blocks<Type, 16>(row, random);
  if constexpr (kWidth >= 8) narrow_blocks<Type, 8>(row, random);
  narrow_blocks<Type, 4>(row, random);
  narrow_blocks<Type, 1>(row, random);
  return row.beyond;
}

// As F16C does it, bit for bit.
template <int width>
HOTROW_INLINE std::size_t widen_float16_blocks(const std::uint16_t* from, float* to, std::size_t at, std::size_t dim) {
  using Ints = typename Vector<width>::Ints;
  using Floats = typename Vector<width>::Floats;
  for (; at + width <= dim; at += width) {
    typename Vector<width>::Halves halves;
    __builtin_memcpy(&halves, from + at, sizeof halves);
    const Ints bits = __builtin_convertvector(halves, Ints), size = bits & 0x7fff;
    const Ints subnormal = (Ints)(__builtin_convertvector(size, Floats) * 0x1p-24f);
    const Ints finite = size < 0x400 ? subnormal : (size << 13) + 0x38000000;
    const Ints other = 0x7f800000 | size << 13 | (size > 0x7c00 ? Ints{} + 0x400000 : Ints{});  // NaN becomes quiet
    const Ints result = (size < 0x7c00 ? finite : other) | (bits & 0x8000) << 16;
    __builtin_memcpy(to + at, &result, sizeof result);
  }
  return at;
}

void widen_float16(const std::uint16_t* from, float* to, std::size_t dim) {
  std::size_t at = 0;
#if defined(__AVX512F__)
  constexpr __mmask16 all = 0xffff;  // the unmasked intrinsics make GCC 12 warn of its own headers
  for (; at + 16 <= dim; at += 16) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at));
    _mm512_storeu_ps(to + at, _mm512_maskz_cvtph_ps(all, halves));
  }
#endif
#if defined(__F16C__)
  for (; at + 8 <= dim; at += 8)
    _mm256_storeu_ps(to + at, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at))));
#endif
  at = widen_float16_blocks<4>(from, to, at, dim);
  widen_float16_blocks<1>(from, to, at, dim);
}

void widen_bfloat16(const std::uint16_t* __restrict from, float* __restrict to, std::size_t dim) {
  for (std::size_t i = 0; i < dim; ++i) to[i] = __builtin_bit_cast(float, std::uint32_t{from[i]} << 16);
}

}  // namespace

extern const NarrowKernels narrow_kernels_table = {
    .widen = {nullptr, widen_float16, widen_bfloat16},
    .narrow = {nullptr, narrow<Float16>, narrow<BFloat16>},
};

}  // namespace hotrow::store::HOTROW_ISA
