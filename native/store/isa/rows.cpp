// The arithmetic of rows. Compiled once per instruction set; see store/isa.h for what may not be used here.
//
// Elements are independent, products and sums are never fused, and sums over a row run in 16 fixed lanes: so every
// instruction set, and every number of threads, computes the same bits.
#include "store/rows.h"

#include <math.h>
#include <stdint.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define HOTROW_INLINE inline __attribute__((always_inline))

namespace hotrow::store::HOTROW_ISA {
namespace {

constexpr size_t kLanes = 16;

// body(i) for every element, in blocks the compiler turns into whole vectors.
template <typename Body>
HOTROW_INLINE void each(size_t dim, Body body) {
  size_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
#pragma GCC ivdep
    for (size_t lane = 0; lane < kLanes; ++lane) body(i + lane);
  }
#pragma GCC ivdep
  for (; i < dim; ++i) body(i);
}

inline float square_root(float x) { return __builtin_sqrtf(x); }

// Sixteen running sums and, at the end, their sum in a fixed order.
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float)), aligned(4)));

inline float total(Lanes lanes) {
  lanes += __builtin_shufflevector(lanes, lanes, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  lanes += __builtin_shufflevector(lanes, lanes, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3);
  lanes += __builtin_shufflevector(lanes, lanes, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1);
  return lanes[0] + lanes[1];
}

template <typename Element>  // element(i): what to square and add
HOTROW_INLINE float sum_of_squares(size_t dim, Element element) {
  Lanes sums = {};
  size_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
    Lanes block;
    for (size_t lane = 0; lane < kLanes; ++lane) block[lane] = element(i + lane);
    sums += block * block;
  }
  for (size_t lane = 0; i + lane < dim; ++lane) sums[lane] += element(i + lane) * element(i + lane);
  return total(sums);
}

// Keys whose rows are asked for before their turn. With 16, expand took 0.95 instead of 0.75 ms and fold 1.6 instead of
// 1.15 (106,496 rows of 16 floats, one thread).
constexpr size_t kAhead = 48;

inline void prefetch_row(const float* row, size_t dim) {
  for (size_t i = 0; i < dim; i += 16) __builtin_prefetch(row + i);
}

// Stores that go to memory past the caches. An ordinary store reads the line first, and a large output pushes out of
// the caches what the update is about to use: a lookup of 106,496 rows took 1.3 times as long.
#if defined(__SSE2__)
inline bool may_stream(const float* out, size_t dim) {
  return reinterpret_cast<uintptr_t>(out) % sizeof(__m128) == 0 && dim % 4 == 0;
}

inline void stream_row(float* to, const float* from, size_t dim) {
#if defined(__AVX512F__)
  if (reinterpret_cast<uintptr_t>(to) % sizeof(__m512) == 0 && dim % kLanes == 0) {
    for (size_t i = 0; i < dim; i += kLanes) _mm512_stream_ps(to + i, _mm512_loadu_ps(from + i));
    return;
  }
#endif
  for (size_t i = 0; i < dim; i += 4) _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
}

inline void end_stream() { _mm_sfence(); }  // other threads see the stores before they see that we are done
#else
inline bool may_stream(const float*, size_t) { return false; }
inline void stream_row(float*, const float*, size_t) {}
inline void end_stream() {}
#endif

template <typename Copy>
HOTROW_INLINE void expand_by(Copy copy, float* out, const float* rows, const uint32_t* inverse, size_t begin,
                             size_t end, size_t dim) {
  for (size_t n = begin; n < end; ++n) {
    if (n + kAhead < end) prefetch_row(rows + size_t{inverse[n + kAhead]} * dim, dim);
    copy(out + n * dim, rows + size_t{inverse[n]} * dim);
  }
}

void expand(float* out, const float* rows, const uint32_t* inverse, size_t begin, size_t end, size_t dim,
            bool past_caches) {
  if (past_caches && may_stream(out, dim)) {
    expand_by([=](float* to, const float* from) { stream_row(to, from, dim); }, out, rows, inverse, begin, end, dim);
    end_stream();
    return;
  }
  const auto copy = [=](float* __restrict to, const float* __restrict from) {
    each(dim, [=](size_t i) { to[i] = from[i]; });
  };
  expand_by(copy, out, rows, inverse, begin, end, dim);
}

void fold(float* sums, const Gradients& gradients, const uint32_t* inverse, const uint32_t* keys, size_t count,
          size_t dim) {
  for (size_t n = 0; n < count; ++n) {
    if (n + kAhead < count) {
      const uint32_t ahead = keys[n + kAhead];
      prefetch_row(gradients.row(ahead, dim), dim);
      prefetch_row(sums + size_t{inverse[ahead]} * dim, dim);
    }
    const uint32_t key = keys[n];
    const float weight = gradients.weights ? gradients.weights[key] : 1.0f;
    if (weight == 0.0f) continue;  // what has no weight may even be infinite
    const float* __restrict from = gradients.row(key, dim);
    float* __restrict to = sums + size_t{inverse[key]} * dim;
    each(dim, [=](size_t i) { to[i] += weight * from[i]; });
  }
}

float squared_norm(const float* values, size_t dim) {
  return sum_of_squares(dim, [=](size_t i) { return values[i]; });
}

void squared_norms(RowUpdate* rows, size_t count, size_t dim) {
  for (size_t n = 0; n < count; ++n) {
    const float* gradient = rows[n].gradient;
    rows[n].touch.squares = sum_of_squares(dim, [=](size_t i) { return gradient[i]; });
  }
}

void add(float* __restrict to, const float* __restrict from, size_t dim) {
  each(dim, [=](size_t i) { to[i] += from[i]; });
}

HOTROW_INLINE void decay(float* __restrict moment, float factor, float floor, size_t count) {
  each(count, [=](size_t i) {
    const float least = moment[i] < floor ? moment[i] : floor;  // the floor stops decay, it never raises
    const float decayed = moment[i] * factor;
    moment[i] = decayed > least ? decayed : least;
  });
}

HOTROW_INLINE void sgd(const UpdateRule& rule, const RowTouch& touch, float* __restrict value, float* /*state*/,
                       const float* __restrict gradient, size_t dim) {
  const float lr = rule.lr, l2 = rule.l2, keep = rule.keep, scale = touch.scale;
  each(dim, [=](size_t i) {
    const float g = scale * gradient[i] + l2 * value[i];
    value[i] = keep * value[i] - lr * g;
  });
}

template <bool eps_inside>
HOTROW_INLINE void adagrad_elements(const UpdateRule& rule, const RowTouch& touch, float* __restrict value,
                                    float* __restrict moment, const float* __restrict gradient, size_t dim,
                                    float old_share, float new_share) {
  const float lr = rule.lr, l2 = rule.l2, keep = rule.keep, eps = rule.eps, scale = touch.scale;
  each(dim, [=](size_t i) {
    const float g = scale * gradient[i] + l2 * value[i];
    const float v = old_share * moment[i] + new_share * (g * g);
    moment[i] = v;
    const float root = eps_inside ? square_root(v + eps) : square_root(v) + eps;
    // Without eps a moment of zero means that every gradient so far was zero: nothing moves.
    value[i] = keep * value[i] - (root > 0 ? lr * g / root : 0.0f);
  });
}

HOTROW_INLINE void adagrad(const UpdateRule& rule, const RowTouch& touch, float* value, float* state,
                           const float* gradient, size_t dim) {
  if (touch.swap_decay != 1.0f) decay(state, touch.swap_decay, rule.swap_floor, dim);
  if (rule.eps_inside)
    adagrad_elements<true>(rule, touch, value, state, gradient, dim, 1.0f, rule.workers);
  else
    adagrad_elements<false>(rule, touch, value, state, gradient, dim, 1.0f, rule.workers);
}

HOTROW_INLINE void decayed_adagrad(const UpdateRule& rule, const RowTouch& touch, float* value, float* state,
                                   const float* gradient, size_t dim) {
  if (rule.eps_inside)
    adagrad_elements<true>(rule, touch, value, state, gradient, dim, rule.rate, rule.rate_rest);
  else
    adagrad_elements<false>(rule, touch, value, state, gradient, dim, rule.rate, rule.rate_rest);
}

HOTROW_INLINE void rowwise_adagrad(const UpdateRule& rule, const RowTouch& touch, float* __restrict value, float* state,
                                   const float* __restrict gradient, size_t dim) {
  if (touch.swap_decay != 1.0f) decay(state, touch.swap_decay, rule.swap_floor, 1);
  const float l2 = rule.l2, keep = rule.keep, scale = touch.scale;
  const bool plain = scale == 1.0f && l2 == 0.0f;  // then the sum is known already
  const float squares =
      plain ? touch.squares : sum_of_squares(dim, [=](size_t i) { return scale * gradient[i] + l2 * value[i]; });
  const float v = *state + rule.workers * (squares / static_cast<float>(dim));
  *state = v;
  const float root = rule.eps_inside ? square_root(v + rule.eps) : square_root(v) + rule.eps;
  const float rate = root > 0 ? rule.lr / root : 0.0f;
  each(dim, [=](size_t j) {
    const float g = scale * gradient[j] + l2 * value[j];
    value[j] = keep * value[j] - rate * g;
  });
}

HOTROW_INLINE void adam(const UpdateRule& rule, const RowTouch& touch, float* __restrict value, float* __restrict state,
                        const float* __restrict gradient, size_t dim) {
  float* __restrict mean = state;
  float* __restrict moment = state + dim;
  if (touch.swap_decay != 1.0f) decay(moment, touch.swap_decay, rule.swap_floor, dim);
  const float l2 = rule.l2, keep = rule.keep, eps = rule.eps, scale = touch.scale, step = touch.step_size;
  const float rest1 = rule.beta1_rest, rest2 = rule.beta2_rest;
  each(dim, [=](size_t i) {
    const float g = scale * gradient[i] + l2 * value[i];
    const float m = mean[i] + rest1 * (g - mean[i]);
    const float v = moment[i] + rest2 * (g * g - moment[i]);
    mean[i] = m;
    moment[i] = v;
    const float root = square_root(v) + eps;
    value[i] = keep * value[i] - (root > 0 ? step * m / root : 0.0f);
  });
}

// FTRL keeps z and n; the value is a function of both. `ftrl_z` is that function's inverse.
inline float ftrl_denominator(const UpdateRule& rule, float n) {
  return (rule.beta + square_root(n)) * rule.inverse_lr + rule.l2;
}
inline float ftrl_z(const UpdateRule& rule, float value, float n) {
  return -value * ftrl_denominator(rule, n) - (value > 0 ? rule.l1 : value < 0 ? -rule.l1 : 0.0f);
}

HOTROW_INLINE void ftrl(const UpdateRule& rule, const RowTouch& touch, float* __restrict value, float* __restrict state,
                        const float* __restrict gradient, size_t dim) {
  float* __restrict zs = state;
  float* __restrict ns = state + dim;
  for (size_t i = 0; i < dim; ++i) {
    float w = value[i];
    float z = zs[i];
    if (rule.keep != 1.0f && w != 0) {
      w *= rule.keep;
      z = ftrl_z(rule, w, ns[i]);
    }
    const float g = touch.scale * gradient[i];
    const float n = ns[i] + g * g;
    const float sigma = (square_root(n) - square_root(ns[i])) * rule.inverse_lr;
    z += g - sigma * w;
    zs[i] = z;
    ns[i] = n;
    const float beyond = z > rule.l1 ? z - rule.l1 : z < -rule.l1 ? z + rule.l1 : 0.0f;
    value[i] = -beyond / ftrl_denominator(rule, n);
  }
}

// A rule of one row for many of them. The rule is copied: what a row's floats are stored through might point into the
// caller's, which would then be read again for every row.
template <auto update_row>
void update_rows(const UpdateRule& callers, const RowUpdate* rows, size_t count, size_t dim) {
  const UpdateRule rule = callers;
  for (size_t n = 0; n < count; ++n) {
    const RowUpdate& row = rows[n];
    update_row(rule, row.touch, row.value, row.state, row.gradient, dim);
  }
}

// A stream of bits per (stream, key), one 64-bit word per element.
inline uint64_t scramble(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ull;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ull;
  return x ^ (x >> 32);
}
constexpr uint64_t kGolden = 0x9e3779b97f4a7c15ull;

// ln x for normal x > 0, from nothing but IEEE + - * /: the libraries' logarithms differ in the last bit.
inline double logarithm(double x) {
  uint64_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffffull) | 0x3ff0000000000000ull;
  double mantissa;
  __builtin_memcpy(&mantissa, &bits, sizeof mantissa);
  if (mantissa > 1.4142135623730951) {
    mantissa *= 0.5;
    ++exponent;
  }
  const double s = (mantissa - 1) / (mantissa + 1), square = s * s;
  double series = 0;
  for (int power = 23; power >= 1; power -= 2) series = series * square + 1.0 / power;
  return 2 * s * series + static_cast<double>(exponent) * 0.6931471805599453;
}

// cos(2 pi turn) for turn in [0, 1): folded to an eighth of a turn, then the series of sine or cosine.
inline double cosine_of_turn(double turn) {
  double fold = turn > 0.5 ? 1 - turn : turn;  // cos is even
  const bool negative = fold > 0.25;
  if (negative) fold = 0.5 - fold;
  const bool sine = fold > 0.125;
  const double angle = 6.283185307179586 * (sine ? 0.25 - fold : fold), square = angle * angle;
  double term = sine ? angle : 1, sum = term;
  for (int n = sine ? 2 : 1; n < 20; n += 2) {
    term *= -square / (n * (n + 1));
    sum += term;
  }
  return negative ? -sum : sum;
}

void first_values(const FirstValues& first, uint64_t key, float* __restrict out, size_t dim) {
  const uint64_t stream = scramble(first.stream ^ scramble(key + kGolden));
  const float amount = first.amount;
  switch (first.kind) {
    case InitKind::constant:
      each(dim, [=](size_t i) { out[i] = amount; });
      return;
    case InitKind::uniform:
      each(dim, [=](size_t i) {
        const auto bits =
            static_cast<int32_t>(scramble(stream + (i + 1) * kGolden) >> 40);  // 24 bits: exact in a float
        out[i] = static_cast<float>(bits - (1 << 23)) * (1.0f / (1 << 23)) * amount;
      });
      return;
    case InitKind::normal:
      for (size_t i = 0; i < dim; ++i) {  // Box and Muller, one of the pair
        const uint64_t bits = scramble(stream + (i + 1) * kGolden), more = scramble(bits + kGolden);
        const double radius = static_cast<double>((bits >> 11) + 1) * 0x1p-53,
                     turn = static_cast<double>(more >> 11) * 0x1p-53;
        out[i] = static_cast<float>(__builtin_sqrt(-2 * logarithm(radius)) * cosine_of_turn(turn)) * amount;
      }
      return;
  }
}

void follow_value(const UpdateRule& rule, const float* value, float* state, size_t dim) {
  if (rule.rule != Rule::ftrl) return;
  for (size_t i = 0; i < dim; ++i) state[i] = ftrl_z(rule, value[i], state[dim + i]);
}

void first_state(const UpdateRule& rule, float initial, const float* value, float* state, size_t dim) {
  switch (rule.rule) {
    case Rule::adagrad:
    case Rule::decayed_adagrad:
      for (size_t i = 0; i < dim; ++i) state[i] = initial;
      return;
    case Rule::rowwise_adagrad:
      *state = initial;
      return;
    case Rule::adam:
      for (size_t i = 0; i < 2 * dim; ++i) state[i] = 0;
      return;
    case Rule::ftrl:
      for (size_t i = 0; i < dim; ++i) state[dim + i] = initial;
      follow_value(rule, value, state, dim);
      return;
    default:
      return;
  }
}

}  // namespace

extern const RowKernels row_kernels_table = {
    .expand = expand,
    .fold = fold,
    .squared_norm = squared_norm,
    .add = add,
    .decay = decay,
    .squared_norms = squared_norms,
    .update = {update_rows<sgd>, update_rows<adagrad>, update_rows<rowwise_adagrad>, update_rows<decayed_adagrad>,
               update_rows<adam>, update_rows<ftrl>},
    .first_values = first_values,
    .first_state = first_state,
    .follow_value = follow_value,
};

}  // namespace hotrow::store::HOTROW_ISA
