// Strings to 64-bit keys. The hash is part of every checkpoint that was trained on strings, so it never changes:
//
//   fold(a, b) = low 64 bits of a * b, xor high 64 bits of a * b          (the product has 128 bits)
//   h = (seed ^ K0) + length * K1                                           (mod 2^64; length in bytes)
//   for each 8 bytes, little endian, the last ones padded with zeros:
//     h = fold(h ^ word, K2)                                                (the empty string has one word, 0)
//   hash = fold(h ^ K3, K1)
//
// K0..K3 are the first 64 bits behind the point of the square roots of 2, 3, 5 and 7. Every bit of a string moves each
// bit of the hash with probability 1/2, and collisions are as rare as chance; it does not resist somebody who looks for
// them.
//
// An id is a number where its text writes one: string_ids gives a whole decimal number in its one canonical form ("0",
// "42", "-7"; not "007", "+1", "-0" or "1.0") as its 64 bits if int64 or uint64 holds it, any other text by its hash.
// So a text file and a typed file with the same integers name the same rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hotrow::store {

// An Arrow array of strings or bytes: string i is data[offsets[i]] up to data[offsets[i + 1]].
template <typename Offset>
struct StringColumn {
  std::span<const std::uint8_t> data;
  std::span<const Offset> offsets;  // one more than strings
  const std::uint8_t* validity;     // bitmap, least significant bit first, 0 = null; or nothing, when none is null
  std::size_t first_bit;            // where this column begins in the bitmap

  std::size_t size() const { return offsets.size() - 1; }
};

// out[i] = hash of string i, or `null`. Returns how many are null. Throws std::invalid_argument, before it writes, if
// offsets fall or leave the data.
template <typename Offset>
std::size_t hash_strings(const StringColumn<Offset>& column, std::uint64_t seed, std::uint64_t null, std::uint64_t* out,
                         int threads);

// The same with the rule of ids above.
template <typename Offset>
std::size_t string_ids(const StringColumn<Offset>& column, std::uint64_t seed, std::uint64_t null, std::uint64_t* out,
                       int threads);

}  // namespace hotrow::store
