// store/window.h and store/remembered.h by themselves: uses that are known ahead, frequencies of evicted rows.
#include "store/window.h"

#include <map>
#include <random>
#include <set>

#include "store/remembered.h"
#include "tests/check.h"

namespace hotrow::store {
namespace {

TEST(window_tells_the_first_announced_batch_that_has_not_begun) {
  Window window;
  CHECK_EQ(window.next_use(7), 0u);
  CHECK_EQ(window.remove(7, 1), 0u);
  CHECK_EQ(window.announce(7, 1), 1u);
  CHECK_EQ(window.announce(7, 3), 1u);
  CHECK_EQ(window.announce(8, 3), 3u);
  CHECK_EQ(window.remove(7, 2), 1u);  // was never announced
  CHECK_EQ(window.remove(7, 1), 3u);
  CHECK_EQ(window.remove(7, 3), 0u);
  CHECK_EQ(window.keys(), 1u);
  CHECK_EQ(window.announce(7, 4), 4u);
}

// Keys whose low bits are alike lie in one run of places: secret_hash is the key itself in these tests.
TEST(window_agrees_with_a_map_of_sets) {
  std::mt19937 chance(5);
  Window window;
  std::map<Key, std::set<std::uint32_t>> twin;
  std::uint32_t batch = 0;
  for (int step = 0; step < 20'000; ++step) {
    const Key key = (chance() % 40) * (chance() % 2 == 0 ? 1 : 1024);
    if (chance() % 2 == 0) {
      twin[key].insert(++batch);
      CHECK_EQ(window.announce(key, batch), *twin[key].begin());
    } else {
      const auto found = twin.find(key);
      std::uint32_t gone = 0;
      if (found != twin.end()) {
        gone = chance() % 4 == 0 ? *found->second.rbegin() : *found->second.begin();
        found->second.erase(gone);
        if (found->second.empty()) twin.erase(found);
      }
      CHECK_EQ(window.remove(key, gone), twin.count(key) == 0 ? 0 : *twin[key].begin());
    }
    CHECK_EQ(window.keys(), twin.size());
  }
  for (const auto& [key, uses] : twin) CHECK_EQ(window.next_use(key), *uses.begin());
}

TEST(remembered_has_the_last_key_of_each_place) {
  Remembered nothing(0);
  nothing.put(1, 5);
  CHECK_EQ(nothing.get(1), 0u);
  Remembered few(1);  // two places
  std::size_t kept = 0;
  for (Key key = 1; key <= 100; ++key) few.put(key, static_cast<std::uint32_t>(key));
  for (Key key = 1; key <= 100; ++key) {
    const std::uint32_t found = few.get(key);
    CHECK(found == 0 || found == key);
    kept += found != 0;
  }
  CHECK_EQ(kept, 2u);
  few.put(1, 100'000);
  CHECK_EQ(few.get(1), Remembered::kMost);
}

}  // namespace
}  // namespace hotrow::store
