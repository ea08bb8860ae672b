// store/paged_index.h by itself. The secret of these tests makes a hash equal to its key (units.cpp): its low bits
// choose the page, its high ones the place.
#include "store/paged_index.h"

#include <unistd.h>

#include <filesystem>
#include <map>
#include <random>

#include "tests/check.h"

namespace hotrow::store {
namespace {

struct Rig {
  explicit Rig(std::size_t pages, IoChoice io = IoChoice::threads)
      : index(std::filesystem::temp_directory_path() / ("paged-" + std::to_string(getpid())), false, io, 8,
              pages * kPage) {}

  void bring(Key key, IndexUse use) {
    IndexPins pins(index);
    while (!pins.take({&key, 1}, use)) index.bring(state, pins.pages());
  }
  std::uint32_t find(Key key) {
    bring(key, IndexUse::find);
    return index.find(key);
  }
  std::uint32_t put(Key key, std::uint32_t slot) {
    bring(key, IndexUse::put);
    return index.put(key, slot);
  }
  std::uint32_t erase(Key key) {
    bring(key, IndexUse::erase);
    return index.erase(key);
  }
  std::vector<std::string> faults() {
    std::vector<std::string> found;
    std::size_t counted = index.overflow();
    for (std::uint32_t page = 0; page < index.page_count(); ++page) {
      IndexPins pins(index);
      while (!pins.take_pages({page})) index.bring(state, pins.pages());
      counted += index.verify_page(page, found);
    }
    if (counted != index.size()) found.emplace_back("counts wrong");
    return found;
  }

  std::shared_mutex state;
  PagedIndex index;
};

TEST(paged_index_agrees_with_a_map_while_pages_leave) {
  for (const IoChoice io : {IoChoice::threads, IoChoice::automatic}) {
    Rig rig(2, io);
    std::map<Key, std::uint32_t> twin;
    std::mt19937_64 chance(7);
    for (std::uint32_t step = 0; step < 12'000; ++step) {
      const Key key = (chance() % 3000) * 0x9e3779b97f4a7c15ull;
      const auto known = twin.find(key);
      const std::uint32_t before = known == twin.end() ? kNoSlot : known->second;
      const bool growing = step % 6000 < 3500;
      if (chance() % 10 < (growing ? 7 : 2)) {
        CHECK_EQ(rig.put(key, step), before);
        twin[key] = step;
      } else if (chance() % 4 != 0) {
        CHECK_EQ(rig.erase(key), before);
        twin.erase(key);
      } else {
        CHECK_EQ(rig.find(key), before);
      }
    }
    CHECK_EQ(rig.index.size(), twin.size());
    CHECK(rig.index.stats().reads > 0 && rig.index.stats().writes > 0);
    CHECK(rig.faults().empty());
  }
}

// As a scan replays them: puts and erasures of one call, with the pages that puts need. Keys of a call share low bits
// of their hashes, so that buddies of pages that erasures empty are not in memory.
TEST(paged_index_takes_erasures_among_puts) {
  for (const std::size_t pages : {1, 2, 4}) {
    Rig rig(pages);
    std::map<Key, std::uint32_t> twin;
    std::mt19937_64 chance(pages);
    for (std::uint32_t call = 0; call < 400; ++call) {
      const Key low = chance() % 16;
      const bool growing = call < 100 || chance() % 2 == 0;
      std::vector<Key> keys(600);
      for (Key& key : keys) key = (chance() % 200 * 0x9e3779b97f4a7c15ull & ~Key{15}) | low;
      IndexPins pins(rig.index);
      while (!pins.take(keys, IndexUse::put)) rig.index.bring(rig.state, pins.pages());
      for (const Key key : keys) {
        const auto known = twin.find(key);
        const std::uint32_t before = known == twin.end() ? kNoSlot : known->second;
        if (chance() % 100 < (growing ? 90 : 1)) {
          CHECK_EQ(rig.index.put(key, call), before);
          twin[key] = call;
        } else {
          CHECK_EQ(rig.index.erase(key), before);
          twin.erase(key);
        }
      }
    }
    CHECK_EQ(rig.index.size(), twin.size());
    CHECK(rig.faults().empty());
  }
}

TEST(paged_index_pages_without_entries_are_given_back) {
  Rig rig(64);
  for (Key key = 0; key < 5000; ++key) rig.put(key << 32 | key, static_cast<std::uint32_t>(key));
  CHECK(rig.index.page_count() > 15);
  const std::size_t filled = rig.index.stats().filter_bytes;
  for (Key key = 0; key < 5000; ++key) CHECK_EQ(rig.erase(key << 32 | key), key);
  CHECK_EQ(rig.index.size(), 0u);
  CHECK_EQ(rig.index.stats().filter_bytes, 0u);
  const std::uint32_t pages = rig.index.page_count();
  for (Key key = 0; key < 5000; ++key) rig.put(key << 32 | key, static_cast<std::uint32_t>(key));
  CHECK_EQ(rig.index.page_count(), pages);
  CHECK_EQ(rig.index.stats().filter_bytes, filled);
}

TEST(paged_index_filters_are_those_of_their_pages_after_every_division_and_merger) {
  Rig rig(64);
  const auto key_of = [](Key number) { return number << 32 | number; };
  std::size_t divided = 0, shrunk = 0;
  for (Key number = 0; number < 1500; ++number) {
    const std::uint32_t pages = rig.index.page_count();
    rig.put(key_of(number), 1);
    if (rig.index.page_count() == pages) continue;
    ++divided;
    CHECK(rig.faults().empty());
  }
  for (Key number = 0; number < 1500; ++number) {
    const std::size_t filters = rig.index.stats().filter_bytes;
    rig.erase(key_of(number));
    if (rig.index.stats().filter_bytes == filters) continue;
    ++shrunk;
    CHECK(rig.faults().empty());
  }
  CHECK(divided > 4 && shrunk > 20);
}

TEST(paged_index_pages_that_a_call_needs_stay_in_memory) {
  Rig rig(2);
  for (Key key = 0; key < 5000; ++key) rig.put(key << 32 | key, static_cast<std::uint32_t>(key));
  const Key kept[] = {3, std::uint64_t{4} << 32 | 4};
  IndexPins pins(rig.index);
  while (!pins.take(kept, IndexUse::put)) rig.index.bring(rig.state, pins.pages());
  for (Key key = 100; key < 400; ++key) CHECK_EQ(rig.find(key << 32 | key), key);
  CHECK_EQ(rig.index.find(kept[0]), kNoSlot);
  CHECK_EQ(rig.index.put(kept[1], 44), 4u);
}

TEST(paged_index_keys_that_no_bit_tells_apart_overflow_into_memory) {
  Rig rig(4);
  for (Key key = 0; key < 400; ++key) rig.put(key << 40, static_cast<std::uint32_t>(key));
  CHECK_EQ(rig.index.overflow(), 400u - 306u);
  for (Key key = 0; key < 400; ++key) CHECK_EQ(rig.find(key << 40), key);
  CHECK(rig.faults().empty());
  for (Key key = 0; key < 400; ++key) CHECK_EQ(rig.erase(key << 40), key);
  CHECK_EQ(rig.index.size(), 0u);
}

TEST(paged_index_refuses_pages_that_were_not_brought) {
  Rig rig(1);
  for (Key key = 0; key < 2000; ++key) rig.put(key << 32 | key, 1);
  std::size_t refused = 0;
  for (Key key = 0; key < 2000; ++key) {
    try {
      CHECK_EQ(rig.index.find(key << 32 | key), 1u);
    } catch (const std::logic_error&) {
      ++refused;
    }
  }
  CHECK(refused > 1000);
}

TEST(key_filter_takes_few_absent_keys_for_present_ones) {
  std::mt19937_64 chance(3);
  std::size_t wrong = 0;
  for (int turn = 0; turn < 50; ++turn) {
    KeyFilter filter;
    CHECK(!filter.may_have(chance()));
    filter.reset(264);  // six full blocks
    std::vector<std::uint64_t> keys(264);
    for (std::uint64_t& key : keys) filter.add(key = chance());
    for (const std::uint64_t key : keys) CHECK(filter.may_have(key));
    for (int i = 0; i < 2000; ++i) wrong += filter.may_have(chance());
  }
  CHECK(wrong > 100 && wrong < 2000);  // of 100,000
}

}  // namespace
}  // namespace hotrow::store
