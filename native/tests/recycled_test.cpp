// store/recycled.h by itself.
#include "store/recycled.h"

#include <cstdint>
#include <thread>
#include <vector>

#include "tests/check.h"

namespace hotrow::store {
namespace {

constexpr std::size_t kMegabyte = std::size_t{1} << 20;

TEST(recycled_block_is_taken_again_by_arrays_of_about_its_size) {
  Recycled<std::uint32_t> first, other;
  first.make(kMegabyte);
  const std::uint32_t* const place = first.get();
  other.make(kMegabyte);
  CHECK(other.get() != place);
  for (const std::size_t count : {kMegabyte - 9, kMegabyte - kMegabyte / 5, kMegabyte}) {
    first.make(count);  // gives its block back first
    CHECK_EQ(first.get(), place);
  }
  std::thread([&] { first = Recycled<std::uint32_t>(); }).join();
  Recycled<std::uint64_t> again;
  again.make(kMegabyte / 2);
  CHECK_EQ(static_cast<const void*>(again.get()), static_cast<const void*>(place));
}

TEST(recycled_block_does_not_serve_an_array_of_half_its_size) {
  const Block large = take_block(8 * kMegabyte);
  give_block(large);
  const Block small = take_block(4 * kMegabyte);
  CHECK(small.data != large.data);
  CHECK(small.bytes < 5 * kMegabyte);
  give_block(small);
}

TEST(recycled_blocks_wait_up_to_a_limit_and_small_ones_do_not) {
  std::vector<Block> taken;
  for (std::size_t i = 0; i < 40; ++i) taken.push_back(take_block(10 * kMegabyte));
  for (const Block& block : taken) give_block(block);
  CHECK(waiting_bytes() <= kRecycledKept);
  CHECK(waiting_bytes() > kRecycledKept - 11 * kMegabyte);
  const std::size_t before = waiting_bytes();
  give_block(take_block(kRecycledMin / 2));
  give_block(take_block(2 * kRecycledKept));
  give_block(take_block(0));
  CHECK_EQ(waiting_bytes(), before);
}

}  // namespace
}  // namespace hotrow::store
