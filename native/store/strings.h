// Strings to 64-bit keys by XXH64, whose definition is public (the algorithm description of xxHash):
// a system in any language computes the ids of its requests by itself. The hash is part of every checkpoint that was
// trained on strings, so it never changes again. Its bits are as good as random and collisions as rare as chance; it
// does not resist somebody who looks for them.
//
// On a column of 4 to 32 bytes (a million texts, one thread) ids took 28 ns each, 1.3 times as long as with a private
// hash of one product per 8 bytes; 8, 12 and 16 bytes 1.0 to 1.1 times, 32 bytes 2.0 times.
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
