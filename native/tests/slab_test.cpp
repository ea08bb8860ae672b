// store/slab.h by itself.
#include "store/slab.h"

#include <array>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "tests/check.h"

namespace hotrow::store {
namespace {

constexpr std::size_t kRowBytes = 1024;  // a full chunk has 512 rows
constexpr std::uint32_t kManyRows = 1u << 20;

struct Rig {
  explicit Rig(std::uint32_t rows_max = kManyRows, std::size_t row_bytes = kRowBytes)
      : slab(arena, nullptr, 0, row_bytes, rows_max) {}
  Arena arena;
  Slab slab;
};

// Memory of a chunk that an earlier process left.
struct Left {
  explicit Left(std::uint32_t rows) : memory(rows * kRowBytes / 8) {}
  Piece piece(std::uint32_t first_index, std::uint32_t rows) {
    return {{0, first_index, rows}, reinterpret_cast<std::byte*>(memory.data()), memory.size() * 8};
  }
  std::vector<std::uint64_t> memory;
};

TEST(slab_chunks_double_up_to_half_a_megabyte_and_then_are_equal) {
  Rig rig;
  const std::map<std::uint32_t, std::uint32_t> rooms = {
      {1, 64},    {64, 64},    {65, 128},    {128, 128},   {129, 256},   {256, 256},  {257, 512},
      {512, 512}, {513, 1024}, {1024, 1024}, {1025, 1536}, {1536, 1536}, {1537, 2048}};
  CHECK_EQ(rig.slab.room(), 0u);
  for (std::uint32_t taken = 1; taken <= 1537; ++taken) {
    CHECK_EQ(rig.slab.take(), taken - 1);
    if (rooms.contains(taken)) CHECK_EQ(rig.slab.room(), rooms.at(taken));
  }
  CHECK_EQ(Slab::chunk_bytes(kRowBytes), 512u << 10);
}

TEST(slab_reserves_chunks_up_to_its_limit_and_takes_rows_from_them) {
  Rig rig(1000);
  rig.slab.reserve(65);
  CHECK_EQ(rig.slab.room(), 128u);
  CHECK_EQ(rig.slab.end(), 0u);
  const std::size_t bytes = rig.arena.bytes();
  for (std::uint32_t taken = 0; taken < 128; ++taken) CHECK_EQ(rig.slab.take(), taken);
  CHECK_EQ(rig.arena.bytes(), bytes);
  rig.slab.reserve(128);
  CHECK_EQ(rig.slab.room(), 128u);
  rig.slab.reserve(5000);
  CHECK_EQ(rig.slab.room(), 1000u);
  for (std::uint32_t taken = 128; taken < 1000; ++taken) CHECK_EQ(rig.slab.take(), taken);
  CHECK(rig.slab.full());
}

TEST(slab_chunk_size_for_small_and_large_rows) {
  CHECK_EQ(Slab::chunk_bytes(24), 24u << 14);     // 384 KB: twice of it is more than half a megabyte
  CHECK_EQ(Slab::chunk_bytes(8192), 512u << 10);  // 64 rows are the fewest
  CHECK_EQ(Slab::chunk_bytes(8200), 8200u << 6);
  Rig rig(kManyRows, 8200);
  for (std::uint32_t taken = 0; taken < 129; ++taken) rig.slab.take();
  CHECK_EQ(rig.slab.room(), 192u);
}

TEST(slab_rows_are_zeroed_apart_and_never_move) {
  Rig rig;
  std::map<std::uint32_t, std::byte*> places;
  std::set<std::uintptr_t> addresses;
  for (std::uint32_t i = 0; i < 3000; ++i) {
    const std::uint32_t index = rig.slab.take();
    std::byte* row = rig.slab.row(index);
    for (std::size_t byte = 0; byte < kRowBytes; ++byte) CHECK_EQ(std::to_integer<int>(row[byte]), 0);
    std::memset(row, 1 + static_cast<int>(index % 255), kRowBytes);
    places[index] = row;
    addresses.insert(reinterpret_cast<std::uintptr_t>(row));
  }
  std::uintptr_t before = 0;
  for (const std::uintptr_t address : addresses) {
    CHECK(address - before >= kRowBytes);
    before = address;
  }
  CHECK_EQ(addresses.size(), 3000u);
  for (const auto& [index, row] : places) {
    CHECK_EQ(rig.slab.row(index), row);
    CHECK_EQ(std::to_integer<int>(row[kRowBytes - 1]), 1 + static_cast<int>(index % 255));
  }
}

TEST(slab_ends_at_rows_max_and_takes_no_memory_beyond) {
  Rig rig(100);
  for (std::uint32_t i = 0; i < 100; ++i) {
    CHECK(!rig.slab.full());
    rig.slab.take();
  }
  CHECK(rig.slab.full());
  CHECK_EQ(rig.slab.room(), 100u);  // 64 and 36, not 128
  CHECK_THROWS(std::length_error, "a partition is full", rig.slab.take());
  CHECK_EQ(rig.slab.rows(), 100u);
  rig.slab.give(40);
  CHECK(!rig.slab.full());
  CHECK_EQ(rig.slab.take(), 40u);
  CHECK_THROWS(std::length_error, "a partition is full", rig.slab.take());
}

TEST(slab_never_has_more_rows_than_a_32_bit_index_can_name) {
  const Rig rig(0xffffffffu);
  CHECK_EQ(rig.slab.rows_max(), 0xffffff00u);
}

TEST(slab_last_row_given_back_is_the_first_taken) {
  Rig rig;
  for (int i = 0; i < 10; ++i) Layout::mark(rig.slab.row(rig.slab.take()), 1);
  rig.slab.give(3);
  rig.slab.give(7);
  CHECK(!Layout::live(rig.slab.row(3)));
  CHECK_EQ(rig.slab.free_head(), 7u);
  CHECK_EQ(rig.slab.free_rows(), 2u);
  CHECK_EQ(rig.slab.rows(), 8u);
  CHECK_EQ(rig.slab.end(), 10u);
  CHECK_EQ(rig.slab.take(), 7u);
  CHECK_EQ(rig.slab.take(), 3u);
  CHECK_EQ(rig.slab.take(), 10u);
}

TEST(slab_adopts_only_the_chunk_that_comes_next) {
  Rig rig;
  Left first(64), second(64), third(128);
  CHECK(!rig.slab.adopt(first.piece(1, 64)));
  CHECK(!rig.slab.adopt(first.piece(0, 63)));
  CHECK(!rig.slab.adopt(first.piece(0, 65)));
  Piece short_of_a_byte = first.piece(0, 64);
  short_of_a_byte.bytes -= 1;
  CHECK(!rig.slab.adopt(short_of_a_byte));
  CHECK_EQ(rig.slab.room(), 0u);
  CHECK(rig.slab.adopt(first.piece(0, 64)));
  CHECK(!rig.slab.adopt(first.piece(0, 64)));  // the same once more
  CHECK(rig.slab.adopt(second.piece(64, 64)));
  CHECK(rig.slab.adopt(third.piece(128, 128)));
  CHECK_EQ(rig.slab.room(), 256u);
  CHECK_EQ(rig.slab.row(64), reinterpret_cast<std::byte*>(second.memory.data()));
  CHECK_EQ(rig.slab.row(255), reinterpret_cast<std::byte*>(third.memory.data()) + 127 * kRowBytes);
}

TEST(slab_adopts_nothing_beyond_rows_max) {
  Rig rig(100);
  Left first(64), second(36);
  CHECK(rig.slab.adopt(first.piece(0, 64)));
  CHECK(!rig.slab.adopt(second.piece(64, 64)));
  CHECK(rig.slab.adopt(second.piece(64, 36)));
  CHECK(!rig.slab.adopt(second.piece(100, 0)));
}

TEST(slab_recovers_free_rows_from_versions) {
  Rig rig;
  Left left(64);
  CHECK(rig.slab.adopt(left.piece(0, 64)));
  for (const std::uint32_t live : {1u, 2u, 5u}) Layout::mark(rig.slab.row(live), 9);
  rig.slab.recover();
  CHECK_EQ(rig.slab.end(), 6u);
  CHECK_EQ(rig.slab.rows(), 3u);
  for (const std::uint32_t next : {0u, 3u, 4u, 6u}) CHECK_EQ(rig.slab.take(), next);
}

TEST(slab_recovers_a_full_and_an_empty_chunk) {
  Rig full(64), empty(64);
  Left left(64), bare(64);
  CHECK(full.slab.adopt(left.piece(0, 64)));
  CHECK(empty.slab.adopt(bare.piece(0, 64)));
  for (std::uint32_t index = 0; index < 64; ++index) Layout::mark(full.slab.row(index), 1);
  full.slab.recover();
  empty.slab.recover();
  CHECK(full.slab.full());
  CHECK_EQ(full.slab.rows(), 64u);
  CHECK_EQ(empty.slab.end(), 0u);
  CHECK_EQ(empty.slab.free_rows(), 0u);
}

TEST(slab_equals_a_set_of_rows_under_random_operations) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    std::mt19937_64 random(seed);
    Rig rig(seed % 2 == 0 ? kManyRows : 700, 24);
    std::map<std::uint32_t, std::uint64_t> twin;  // row -> what was written to its end
    std::vector<std::uint32_t> freed;
    for (int operation = 0; operation < 20'000; ++operation) {
      if (random() % 5 < 3 && twin.size() < rig.slab.rows_max()) {
        const std::uint32_t index = rig.slab.take();
        CHECK_EQ(index, freed.empty() ? static_cast<std::uint32_t>(twin.size()) : freed.back());
        if (!freed.empty()) freed.pop_back();
        CHECK(twin.emplace(index, random()).second);
        Layout::mark(rig.slab.row(index), 1);
        std::memcpy(rig.slab.row(index) + 16, &twin[index], 8);
      } else if (!twin.empty()) {
        const auto gone =
            std::next(twin.begin(), static_cast<std::ptrdiff_t>(random() % std::min<std::size_t>(twin.size(), 64)));
        rig.slab.give(gone->first);
        freed.push_back(gone->first);
        twin.erase(gone);
      }
      CHECK_EQ(rig.slab.rows(), twin.size());
      CHECK_EQ(rig.slab.free_rows(), freed.size());
    }
    for (const auto& [index, written] : twin) {
      CHECK(Layout::live(rig.slab.row(index)));
      CHECK_EQ(std::memcmp(rig.slab.row(index) + 16, &written, 8), 0);
    }
  }
}

}  // namespace
}  // namespace hotrow::store
