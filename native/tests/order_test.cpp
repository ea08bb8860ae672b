// store/order.h by itself: the eviction orders.
#include "store/order.h"

#include <list>
#include <map>
#include <random>

#include "tests/check.h"

namespace hotrow::store {
namespace {

constexpr std::uint32_t kMost = 4095;

enum class LinksAre { in_rows, beside };

FieldSet fields_of(LinksAre links) {
  FieldSet used{};
  used[kFrequency] = used[kNextUse] = true;
  used[kOlder] = used[kNewer] = links == LinksAre::in_rows;
  return used;
}

LifeSpec life_of(Eviction policy, std::uint32_t hot) {
  LifeSpec life;
  life.eviction = policy;
  life.hot = hot;
  return life;
}

struct Rig {
  explicit Rig(Eviction policy, std::uint32_t hot = 10, LinksAre links = LinksAre::in_rows)
      : layout(1, RowType::float32, 0, fields_of(links)), order(life_of(policy, hot), layout, slab, 0) {}

  std::uint32_t add(std::uint32_t frequency = 1) {
    const std::uint32_t index = slab.take();
    layout.field(slab.row(index), kFrequency) = frequency;
    order.add(index);
    return index;
  }
  std::uint32_t first() {
    order.restart();
    return order.first([](std::uint32_t) { return false; });
  }
  std::uint32_t frequency(std::uint32_t index) const { return layout.field(slab.row(index), kFrequency); }
  std::vector<std::uint32_t> walked() const {
    std::vector<std::uint32_t> rows;
    order.walk([&](std::uint32_t index, bool) { rows.push_back(index); });
    return rows;
  }

  Layout layout;
  Arena arena;
  Slab slab{arena, nullptr, 0, layout.row_bytes(), 1u << 20};
  Order order;
};

void check_order(const std::vector<std::uint32_t>& found, const std::vector<std::uint32_t>& wanted) {
  CHECK_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) CHECK_EQ(found[i], wanted[i]);
}

TEST(order_empty_has_no_first_row) {
  for (const Eviction policy : {Eviction::lru, Eviction::lfu}) {
    Rig rig(policy);
    CHECK_EQ(rig.first(), kNoRow);
    const std::uint32_t only = rig.add();
    CHECK_EQ(rig.first(), only);
    rig.order.remove(only);
    CHECK_EQ(rig.first(), kNoRow);
    CHECK_EQ(rig.order.rows(), 0u);
  }
}

TEST(order_lru_gives_up_the_row_unseen_for_longest) {
  Rig rig(Eviction::lru);
  for (int i = 0; i < 4; ++i) rig.add();
  CHECK_EQ(rig.first(), 0u);
  rig.order.see(0, 1);
  rig.order.see(2, 100);  // how often does not count
  check_order(rig.walked(), {1, 3, 0, 2});
  CHECK_EQ(rig.frequency(2), 1u);
}

TEST(order_removes_the_oldest_a_middle_and_the_newest_row) {
  Rig rig(Eviction::lru);
  for (int i = 0; i < 5; ++i) rig.add();
  rig.order.remove(0);
  check_order(rig.walked(), {1, 2, 3, 4});
  rig.order.remove(2);
  check_order(rig.walked(), {1, 3, 4});
  rig.order.remove(4);
  check_order(rig.walked(), {1, 3});
  rig.order.add(4);
  check_order(rig.walked(), {1, 3, 4});
  CHECK_EQ(rig.order.rows(), 3u);
}

TEST(order_lfu_gives_up_the_rarest_row_and_the_oldest_among_equals) {
  Rig rig(Eviction::lfu);
  const std::uint32_t often = rig.add(3), older = rig.add(2), newer = rig.add(2);
  check_order(rig.walked(), {older, newer, often});
  rig.order.see(older, 1);  // 3 now, and the newest of those
  check_order(rig.walked(), {newer, often, older});
  CHECK_EQ(rig.first(), newer);
  const std::uint32_t rare = rig.add(1);  // below the lowest frequency so far
  CHECK_EQ(rig.first(), rare);
  rig.order.remove(rare);
  CHECK_EQ(rig.first(), newer);
}

TEST(order_lfu_rows_seen_4095_times_or_more_share_a_list) {
  Rig rig(Eviction::lfu);
  const std::uint32_t more = rig.add(kMost + 1), most = rig.add(kMost), less = rig.add(kMost - 1);
  check_order(rig.walked(), {less, more, most});  // by age, not by frequency, from 4095 on
  rig.order.see(less, 1);
  check_order(rig.walked(), {more, most, less});
  CHECK(rig.order.bytes() >= std::size_t{kMost + 1} * 8);
}

TEST(order_lfu_frequency_sticks_at_the_largest_number) {
  Rig rig(Eviction::lfu);
  const std::uint32_t row = rig.add(0xfffffffeu);
  rig.order.see(row, 1);
  CHECK_EQ(rig.frequency(row), 0xffffffffu);
  rig.order.see(row, 1);
  CHECK_EQ(rig.frequency(row), 0xffffffffu);
  rig.order.see(row, 0xffffffffu);
  CHECK_EQ(rig.frequency(row), 0xffffffffu);
  CHECK_EQ(rig.first(), row);
}

TEST(order_walk_tells_where_each_list_begins) {
  Rig rig(Eviction::lfu);
  for (const std::uint32_t frequency : {2u, 1u, 2u, 1u}) rig.add(frequency);
  std::vector<std::uint32_t> beginnings;
  rig.order.walk([&](std::uint32_t index, bool begins) {
    if (begins) beginnings.push_back(index);
  });
  check_order(beginnings, {1, 0});
}

TEST(order_walk_ends_on_links_that_form_a_ring) {
  Rig rig(Eviction::lru);
  for (int i = 0; i < 3; ++i) rig.add();
  rig.layout.field(rig.slab.row(2), kNewer) = 0;
  CHECK_EQ(rig.walked().size(), 4u);  // one more than there are rows: enough to see the fault
}

// The slow twin: a list per frequency, or one for all.
struct Twin {
  std::map<std::uint32_t, std::list<std::uint32_t>> lists;
  std::map<std::uint32_t, std::uint32_t> frequencies;  // of the rows in it
  bool by_frequency;

  std::list<std::uint32_t>& list_of(std::uint32_t index) {
    return lists[by_frequency ? std::min(frequencies.at(index), kMost) : 0];
  }
  std::vector<std::uint32_t> walked() const {
    std::vector<std::uint32_t> rows;
    for (const auto& [frequency, list] : lists) rows.insert(rows.end(), list.begin(), list.end());
    return rows;
  }
};

std::uint32_t drawn_occurrences(std::mt19937_64& random) {
  return random() % 20 == 0 ? kMost - 2 + static_cast<std::uint32_t>(random() % 4)
                            : 1 + static_cast<std::uint32_t>(random() % 3);
}

TEST(order_equals_lists_of_rows_under_random_operations) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    std::mt19937_64 random(seed);
    const bool by_frequency = seed % 2 == 1;
    Rig rig(by_frequency ? Eviction::lfu : Eviction::lru, 10, seed < 6 ? LinksAre::in_rows : LinksAre::beside);
    Twin twin{{}, {}, by_frequency};
    for (int operation = 0; operation < 2000; ++operation) {
      const std::uint64_t choice = random() % 10;
      if (twin.frequencies.empty() || choice < 3) {
        const std::uint32_t frequency = drawn_occurrences(random), index = rig.add(frequency);
        twin.frequencies[index] = frequency;
        twin.list_of(index).push_back(index);
      } else {
        const auto known =
            std::next(twin.frequencies.begin(), static_cast<std::ptrdiff_t>(random() % twin.frequencies.size()));
        const std::uint32_t index = choice < 5 ? rig.first() : known->first;
        twin.list_of(index).remove(index);
        if (choice < 6) {
          rig.order.remove(index);
          rig.slab.give(index);
          twin.frequencies.erase(index);
        } else {
          const std::uint32_t occurrences = drawn_occurrences(random);
          rig.order.see(index, occurrences);
          if (by_frequency) twin.frequencies[index] += occurrences;
          twin.list_of(index).push_back(index);
        }
      }
      const std::vector<std::uint32_t> wanted = twin.walked();
      CHECK_EQ(rig.first(), wanted.empty() ? kNoRow : wanted.front());
      CHECK_EQ(rig.order.rows(), wanted.size());
      if (operation % 50 == 0) check_order(rig.walked(), wanted);
    }
  }
}

TEST(order_passes_over_rows_that_stay_and_finds_rows_added_below_them) {
  Rig rig(Eviction::lfu);
  const auto stays = [](std::uint32_t index) { return index < 3; };
  for (int i = 0; i < 2; ++i) rig.add(2);
  rig.add(4);
  CHECK_EQ(rig.order.first(stays), kNoRow);
  const std::uint32_t below = rig.add(3);  // between lists that were passed already
  CHECK_EQ(rig.order.first(stays), below);
  const std::uint32_t lowest = rig.add(1), beside = rig.add(2);
  CHECK_EQ(rig.order.first(stays), lowest);
  rig.order.remove(lowest);
  CHECK_EQ(rig.order.first(stays), beside);
  rig.order.remove(1);  // the row that was passed last in its list
  CHECK_EQ(rig.order.first(stays), beside);
  rig.order.remove(beside);
  CHECK_EQ(rig.order.first(stays), below);
  rig.order.remove(below);
  CHECK_EQ(rig.order.first(stays), kNoRow);
  rig.order.restart();  // nobody stays any more
  CHECK_EQ(rig.first(), 0u);
}

TEST(order_walks_over_rows_that_stay_once_however_often_rows_are_added_below_them) {
  Rig rig(Eviction::lfu, 10, LinksAre::beside);
  std::uint32_t asked = 0;
  const auto stays = [&](std::uint32_t index) {
    ++asked;
    return index < 100;
  };
  for (std::uint32_t i = 0; i < 100; ++i) rig.add(70 + i % 7);
  const std::uint32_t late = rig.add(300);
  for (int turn = 0; turn < 50; ++turn) {
    CHECK_EQ(rig.order.first(stays), late);
    const std::uint32_t below = rig.add(1 + static_cast<std::uint32_t>(turn) % 3);
    CHECK_EQ(rig.order.first(stays), below);
    rig.order.remove(below);
    rig.slab.give(below);
  }
  CHECK(asked <= 100 + 2 * 50);
}

TEST(order_light_lfu_leaves_hot_rows_where_they_are) {
  Rig rig(Eviction::light_lfu, 2);
  const std::uint32_t first = rig.add(1), second = rig.add(1), cold = rig.add(1);
  rig.order.see(second, 1);
  rig.order.see(first, 1);
  rig.order.see(second, 5);  // hot: it neither counts nor moves
  check_order(rig.walked(), {cold, second, first});
  CHECK_EQ(rig.frequency(second), 2u);
  rig.order.remove(cold);
  CHECK_EQ(rig.first(), second);  // hot rows go too, when no other can
}

TEST(order_light_lfu_finds_rows_that_became_hot_at_once_after_hot_has_doubled) {
  Rig rig(Eviction::light_lfu, 2);
  const std::uint32_t first = rig.add(1), second = rig.add(1), third = rig.add(1);
  for (const std::uint32_t index : {first, second, third}) rig.order.see(index, 9);
  CHECK_EQ(rig.frequency(second), 2u);
  rig.order.before_evict(first);
  rig.order.remove(first);
  CHECK_EQ(rig.order.most_frequent(), 4u);
  rig.order.see(second, 1);
  check_order(rig.walked(), {third, second});
  rig.order.remove(third);
  check_order(rig.walked(), {second});
  CHECK_EQ(rig.first(), second);
}

TEST(order_ahead_gives_up_rows_without_a_use_by_frequency_and_then_the_furthest) {
  Rig rig(Eviction::ahead);
  const std::uint32_t soon = rig.add(1), often = rig.add(9), rare = rig.add(1), late = rig.add(1);
  for (const std::uint32_t batch : {1u, 2u}) rig.order.announce(batch);
  rig.order.use_next(soon, 1);
  rig.order.use_next(late, 2);
  check_order(rig.walked(), {rare, often, late, soon});
  rig.order.announce(3);
  rig.order.use_next(rare, 3);
  check_order(rig.walked(), {often, rare, late, soon});
  rig.order.see(soon, 1, 0);  // batch 1 has begun
  check_order(rig.walked(), {soon, often, rare, late});
  CHECK_EQ(rig.first(), soon);
}

TEST(order_ahead_batches_that_are_a_whole_window_apart_share_a_list) {
  Rig rig(Eviction::ahead);
  const std::uint32_t old = rig.add(1), recent = rig.add(1), between = rig.add(1);
  rig.order.use_next(old, 1);
  rig.order.use_next(between, Order::kWindow);
  rig.order.use_next(recent, 1 + Order::kWindow);
  rig.order.announce(1 + Order::kWindow);
  check_order(rig.walked(), {old, recent, between});
}

}  // namespace
}  // namespace hotrow::store
