#include "store/strings.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>

#include "store/parallel.h"

namespace hotrow::store {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they lie in memory");

constexpr std::uint64_t kSeed = 0x6a09e667f3bcc908ull;
constexpr std::uint64_t kLength = 0xbb67ae8584caa73bull;
constexpr std::uint64_t kWord = 0x3c6ef372fe94f82bull;
constexpr std::uint64_t kLast = 0xa54ff53a5f1d36f1ull;
constexpr std::uint64_t kLargest = ~std::uint64_t{0};      // of uint64
constexpr std::uint64_t kLowest = std::uint64_t{1} << 63;  // of int64, without its sign
constexpr std::size_t kTaskStrings = std::size_t{1} << 14;

std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

std::uint64_t whole_word(const std::uint8_t* at) {
  std::uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// The last 0 to 8 bytes. Nearly always 8 bytes may be read and the strangers among them masked off; not at the very
// end.
std::uint64_t last_word(const std::uint8_t* at, std::size_t length, const std::uint8_t* readable_end) {
  if (length == 0) return 0;
  if (readable_end - at >= 8) [[likely]]
    return whole_word(at) & ~std::uint64_t{0} >> (64 - 8 * length);
  std::uint64_t word = 0;
  std::memcpy(&word, at, length);
  return word;
}

std::uint64_t hash(const std::uint8_t* at, std::size_t length, std::uint64_t seed, const std::uint8_t* readable_end) {
  std::uint64_t h = (seed ^ kSeed) + length * kLength;
  for (; length > 8; length -= 8, at += 8) h = fold(h ^ whole_word(at), kWord);
  h = fold(h ^ last_word(at, length, readable_end), kWord);
  return fold(h ^ kLast, kLength);
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
  const std::uint8_t* const readable_end = column.data.data() + column.data.size();
  return fill(column, null, out, threads, [seed, readable_end](const std::uint8_t* at, std::size_t length) {
    return hash(at, length, seed, readable_end);
  });
}

template <typename Offset>
std::size_t string_ids(const StringColumn<Offset>& column, std::uint64_t seed, std::uint64_t null, std::uint64_t* out,
                       int threads) {
  check("string_ids", column);
  const std::uint8_t* const readable_end = column.data.data() + column.data.size();
  return fill(column, null, out, threads, [seed, readable_end](const std::uint8_t* at, std::size_t length) {
    std::uint64_t bits;
    return whole_number(at, length, bits) ? bits : hash(at, length, seed, readable_end);
  });
}

template std::size_t hash_strings(const StringColumn<std::int32_t>&, std::uint64_t, std::uint64_t, std::uint64_t*, int);
template std::size_t hash_strings(const StringColumn<std::int64_t>&, std::uint64_t, std::uint64_t, std::uint64_t*, int);
template std::size_t string_ids(const StringColumn<std::int32_t>&, std::uint64_t, std::uint64_t, std::uint64_t*, int);
template std::size_t string_ids(const StringColumn<std::int64_t>&, std::uint64_t, std::uint64_t, std::uint64_t*, int);

}  // namespace hotrow::store
