#include "store/strings.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "store/parallel.h"

namespace hotrow::store {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie in memory");

// The five primes of XXH64.
constexpr std::uint64_t kPrime1 = 0x9e3779b185ebca87ull;
constexpr std::uint64_t kPrime2 = 0xc2b2ae3d27d4eb4full;
constexpr std::uint64_t kPrime3 = 0x165667b19e3779f9ull;
constexpr std::uint64_t kPrime4 = 0x85ebca77c2b2ae63ull;
constexpr std::uint64_t kPrime5 = 0x27d4eb2f165667c5ull;
constexpr std::size_t kStripe = 32;                        // bytes that four lanes take at once
constexpr std::uint64_t kLargest = ~std::uint64_t{0};      // of uint64
constexpr std::uint64_t kLowest = std::uint64_t{1} << 63;  // of int64, without its sign
constexpr std::size_t kTaskStrings = std::size_t{1} << 14;

template <typename Word>
std::uint64_t read(const std::uint8_t* at) {
  Word word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

std::uint64_t mixed(std::uint64_t lane, std::uint64_t word) { return std::rotl(lane + word * kPrime2, 31) * kPrime1; }

// All whole stripes: each lane takes every fourth word.
std::uint64_t hash_stripes(const std::uint8_t* at, std::size_t stripes, std::uint64_t seed) {
  std::uint64_t lanes[4] = {seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1};
  for (; stripes > 0; --stripes, at += kStripe)
    for (std::size_t lane = 0; lane < 4; ++lane) lanes[lane] = mixed(lanes[lane], read<std::uint64_t>(at + 8 * lane));
  std::uint64_t h = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
  for (const std::uint64_t lane : lanes) h = (h ^ mixed(0, lane)) * kPrime1 + kPrime4;
  return h;
}

// The bytes behind the last whole stripe, in words, a half word and bytes, and the last mixing.
template <std::size_t rest>
std::uint64_t hash_rest(std::uint64_t h, const std::uint8_t* at) {
  if constexpr (rest >= 8)
    return hash_rest<rest - 8>(std::rotl(h ^ mixed(0, read<std::uint64_t>(at)), 27) * kPrime1 + kPrime4, at + 8);
  else if constexpr (rest >= 4)
    return hash_rest<rest - 4>(std::rotl(h ^ read<std::uint32_t>(at) * kPrime1, 23) * kPrime2 + kPrime3, at + 4);
  else if constexpr (rest > 0)
    return hash_rest<rest - 1>(std::rotl(h ^ *at * kPrime5, 11) * kPrime1, at + 1);
  h = (h ^ h >> 33) * kPrime2;
  h = (h ^ h >> 29) * kPrime3;
  return h ^ h >> 32;
}

// A function per length: where lengths vary, one jump is mispredicted and not one for each kind of word.
template <std::size_t... rests>
constexpr auto rest_functions(std::index_sequence<rests...>) {
  return std::array{&hash_rest<rests>...};
}
constexpr auto kHashRest = rest_functions(std::make_index_sequence<kStripe>());

std::uint64_t hash(const std::uint8_t* at, std::size_t length, std::uint64_t seed) {
  const std::size_t stripes = length / kStripe;
  const std::uint64_t h = stripes > 0 ? hash_stripes(at, stripes, seed) : seed + kPrime5;
  return kHashRest[length % kStripe](h + length, at + stripes * kStripe);
}

// The bits of the number that a text writes in canonical form; false where it writes none or a larger one.
bool whole_number(const std::uint8_t* at, std::size_t length, std::uint64_t& bits) {
  const std::size_t sign = length > 1 && *at == '-';
  const std::size_t digits = length - sign;
  if (digits - 1 >= 20) return false;  // none, or more than any 64-bit number has
  std::uint64_t number = static_cast<std::uint64_t>(at[sign]) - '0';
  if (number > 9 || (number == 0 && length > 1)) return false;
  for (std::size_t i = sign + 1; i < length; ++i) {
    const std::uint64_t digit = static_cast<std::uint64_t>(at[i]) - '0';
    if (digit > 9 || number > (kLargest - digit) / 10) return false;
    number = number * 10 + digit;
  }
  if (sign && number > kLowest) return false;
  bits = sign ? 0 - number : number;
  return true;
}

template <typename Offset>
void check(const std::string& who, const StringColumn<Offset>& column) {
  const auto& offsets = column.offsets;
  bool falls = false;
  for (std::size_t i = 1; i < offsets.size(); ++i) falls |= offsets[i] < offsets[i - 1];
  if (falls) {
    const auto at = std::ranges::adjacent_find(offsets, std::ranges::greater());
    if (at == offsets.end()) throw std::invalid_argument(who + ": offsets change during the call: leave them alone");
    throw std::invalid_argument(who + ": offsets[" + std::to_string(at - offsets.begin() + 1) + "] is " +
                                std::to_string(at[1]) + " after " + std::to_string(at[0]) + ": must never fall");
  }
  if (offsets.front() < 0 || static_cast<std::uint64_t>(offsets.back()) > column.data.size())
    throw std::invalid_argument(who + ": offsets run from " + std::to_string(offsets.front()) + " to " +
                                std::to_string(offsets.back()) + ": must stay within the data, 0 to " +
                                std::to_string(column.data.size()));
}

constexpr std::size_t kBlockStrings = 512;

// A few offsets as they are now: they may have changed after the whole column was checked. Those that no longer fit the
// data make their strings empty.
template <typename Offset>
struct OwnOffsets {
  OwnOffsets(const StringColumn<Offset>& column, std::size_t first, std::size_t strings) {
    std::copy_n(column.offsets.data() + first, strings + 1, at);
    bool falls = at[0] < 0 || static_cast<std::uint64_t>(at[strings]) > column.data.size();
    for (std::size_t i = 0; i < strings; ++i) falls |= at[i + 1] < at[i];
    if (falls) std::fill_n(at, strings + 1, Offset{0});
  }
  Offset at[kBlockStrings + 1];
};

// out[i] = rule(first byte, length) of string i, or `null`; how many are null.
template <typename Offset, typename Rule>
std::size_t fill(const StringColumn<Offset>& column, std::uint64_t null, std::uint64_t* out, int threads, Rule rule) {
  const std::size_t size = column.size();
  const std::uint8_t* const data = column.data.data();
  std::atomic<std::size_t> nulls{0};
  parallel_for(threads, (size + kTaskStrings - 1) / kTaskStrings, [&](std::size_t task) {
    const std::size_t begin = task * kTaskStrings, end = std::min(size, begin + kTaskStrings);
    for (std::size_t at = begin; at < end; at += kBlockStrings) {
      const std::size_t count = std::min(kBlockStrings, end - at);
      const OwnOffsets<Offset> own(column, at, count);
      for (std::size_t i = 0; i < count; ++i)
        out[at + i] = rule(data + own.at[i], static_cast<std::size_t>(own.at[i + 1] - own.at[i]));
    }
    if (column.validity == nullptr) return;
    std::size_t missing = 0;
    for (std::size_t i = begin; i < end; ++i) {
      const std::size_t bit = column.first_bit + i;
      const bool valid = column.validity[bit / 8] >> (bit % 8) & 1;
      out[i] = valid ? out[i] : null;
      missing += !valid;
    }
    nulls += missing;
  });
  return nulls;
}

}  // namespace

template <typename Offset>
std::size_t hash_strings(const StringColumn<Offset>& column, std::uint64_t seed, std::uint64_t null, std::uint64_t* out,
                         int threads) {
  check("hash_strings", column);
  return fill(column, null, out, threads,
              [seed](const std::uint8_t* at, std::size_t length) { return hash(at, length, seed); });
}

template <typename Offset>
std::size_t string_ids(const StringColumn<Offset>& column, std::uint64_t seed, std::uint64_t null, std::uint64_t* out,
                       int threads) {
  check("string_ids", column);
  return fill(column, null, out, threads, [seed](const std::uint8_t* at, std::size_t length) {
    std::uint64_t bits;
    return whole_number(at, length, bits) ? bits : hash(at, length, seed);
  });
}

template std::size_t hash_strings(const StringColumn<std::int32_t>&, std::uint64_t, std::uint64_t, std::uint64_t*, int);
template std::size_t hash_strings(const StringColumn<std::int64_t>&, std::uint64_t, std::uint64_t, std::uint64_t*, int);
template std::size_t string_ids(const StringColumn<std::int32_t>&, std::uint64_t, std::uint64_t, std::uint64_t*, int);
template std::size_t string_ids(const StringColumn<std::int64_t>&, std::uint64_t, std::uint64_t, std::uint64_t*, int);

}  // namespace hotrow::store
