// fp16 rows. With F16C or AVX-512 the processor converts; the plain path does the same in integers, bit for bit.
#include "store/codec.h"

#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace hotrow::store::HOTROW_ISA {
namespace {

constexpr float kKappa = 16384.0f;
constexpr float kLargestFloat = 3.402823466e38f;

inline std::uint32_t bits_of(float value) { return __builtin_bit_cast(std::uint32_t, value); }
inline float float_of(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

// kappa over the largest finite |v|. The bits of floats without sign order as integers do, non-finite ones on top.
float scale_of(const float* row, std::size_t dim) {
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < dim; ++i) {
    const auto size = static_cast<std::int32_t>(bits_of(row[i]) & 0x7fffffffu);
    const std::int32_t finite = size < 0x7f800000 ? size : 0;
    largest = finite > largest ? finite : largest;
  }
  if (largest == 0) return 1.0f;
  const float scale = kKappa / float_of(static_cast<std::uint32_t>(largest));
  return scale < kLargestFloat ? scale : kLargestFloat;
}

#if defined(__AVX512F__)

constexpr std::size_t kStep = 16;
constexpr __mmask16 kAll = 0xffff;  // the unmasked intrinsics make GCC 12 warn of its own headers
inline void encode_step(const float* from, __m512 scale, Half* to) {
  const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(from), scale);
  const __m256i half = _mm512_maskz_cvtps_ph(kAll, scaled, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), half);
}
inline void decode_step(const Half* from, __m512 scale, float* to) {
  const __m512 value = _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  _mm512_storeu_ps(to, _mm512_div_ps(value, scale));
}
inline __m512 spread(float scale) { return _mm512_set1_ps(scale); }

#elif defined(__F16C__)

constexpr std::size_t kStep = 8;
inline void encode_step(const float* from, __m256 scale, Half* to) {
  const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(from), scale);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(scaled, _MM_FROUND_TO_NEAREST_INT));
}
inline void decode_step(const Half* from, __m256 scale, float* to) {
  const __m256 value = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  _mm256_storeu_ps(to, _mm256_div_ps(value, scale));
}
inline __m256 spread(float scale) { return _mm256_set1_ps(scale); }

#else

constexpr std::size_t kStep = 1;

inline Half half_of(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t size = bits & 0x7fffffffu;
  std::uint32_t half;
  if (size > 0x7f800000u) {  // NaN: quiet, with what fits of its payload
    half = 0x7e00u | (size >> 13 & 0x3ffu);
  } else if (size >= 0x477ff000u) {  // 65520 and up rounds to infinity
    half = 0x7c00u;
  } else if (size >= 0x38800000u) {  // normal: re-bias the exponent and round 13 bits away, to even
    half = (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
  } else {  // denormal or zero: adding 0.5 puts the last bit of fp16, 2^-24, on the last bit of float32 and rounds
            // there
    half = bits_of(float_of(size) + 0.5f) - bits_of(0.5f);
  }
  return static_cast<Half>(sign | half);
}

inline float single_of(Half half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t size = half & 0x7fffu;
  if (size > 0x7c00u) return float_of(sign | 0x7fc00000u | size << 13);
  if (size == 0x7c00u) return float_of(sign | 0x7f800000u);
  if (size >= 0x400u) return float_of(sign | ((size << 13) + 0x38000000u));
  return float_of(sign | bits_of(static_cast<float>(size) * 0x1p-24f));
}

inline void encode_step(const float* from, float scale, Half* to) { *to = half_of(*from * scale); }
inline void decode_step(const Half* from, float scale, float* to) { *to = single_of(*from) / scale; }
inline float spread(float scale) { return scale; }

#endif

// What is left of a row after whole steps goes through padded copies.
void encode_row(const float* row, std::size_t dim, float scale, Half* half) {
  const auto wide = spread(scale);
  std::size_t i = 0;
  for (; i + kStep <= dim; i += kStep) encode_step(row + i, wide, half + i);
  if (i == dim) return;
  float rest[kStep] = {};
  Half result[kStep];
  __builtin_memcpy(rest, row + i, (dim - i) * sizeof(float));
  encode_step(rest, wide, result);
  __builtin_memcpy(half + i, result, (dim - i) * sizeof(Half));
}

void decode_row(const Half* half, std::size_t dim, float scale, float* row) {
  const auto wide = spread(scale);
  std::size_t i = 0;
  for (; i + kStep <= dim; i += kStep) decode_step(half + i, wide, row + i);
  if (i == dim) return;
  Half rest[kStep] = {};
  float result[kStep];
  __builtin_memcpy(rest, half + i, (dim - i) * sizeof(Half));
  decode_step(rest, wide, result);
  __builtin_memcpy(row + i, result, (dim - i) * sizeof(float));
}

void encode(const float* rows, std::size_t count, std::size_t dim, Half* half, float* scale) {
  for (std::size_t row = 0; row < count; ++row) {
    scale[row] = scale_of(rows + row * dim, dim);
    encode_row(rows + row * dim, dim, scale[row], half + row * dim);
  }
}

void decode(const Half* half, const float* scale, std::size_t count, std::size_t dim, float* rows) {
  for (std::size_t row = 0; row < count; ++row) decode_row(half + row * dim, dim, scale[row], rows + row * dim);
}

}  // namespace

extern const CodecKernels codec_kernels_table = {.encode = encode, .decode = decode};

}  // namespace hotrow::store::HOTROW_ISA
