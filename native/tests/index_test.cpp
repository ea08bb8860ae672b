// store/index.h by itself. The secret of these tests makes a hash equal to its key (units.cpp), so keys are built from
// the bits that the index reads.
#include "store/index.h"

#include <array>
#include <map>
#include <random>
#include <unordered_map>

#include "tests/check.h"

namespace hotrow::store {
namespace {

constexpr std::uint32_t kBuckets = 128;          // of a segment of an index with share 0
constexpr std::uint32_t kSegmentEntries = 1305;  // 85 % of its slots
constexpr std::uint32_t kLastBucket = 0xffff;    // bucket bits whose home is the last bucket

// `number` takes the bits that the index does not read: keys with equal other arguments differ in nothing it sees.
constexpr Key key_at(std::uint32_t directory, std::uint32_t bucket, std::uint32_t tag, std::uint32_t number) {
  return Key{directory} << 40 | Key{bucket} << 24 | Key{number} << 8 | tag;
}

// Keys of one home bucket: tag and number differ.
constexpr Key crowded(std::uint32_t bucket, std::uint32_t number) { return key_at(0, bucket, number % 256, number); }

struct Rig {
  explicit Rig(double share = 0) : index(arena, slab, share) {}

  std::uint32_t insert(Key key) {
    const std::uint32_t row = slab.take();
    Layout::key(slab.row(row)) = key;
    Layout::mark(slab.row(row), 1);
    index.insert(secret_hash(key), row);
    return row;
  }
  bool erase(Key key, std::uint32_t row) {
    if (!index.erase(secret_hash(key), row)) return false;
    slab.give(row);
    return true;
  }
  std::uint32_t find(Key key) const { return index.find(secret_hash(key), key); }
  const Bucket& home(Key key) const { return *index.home(secret_hash(key)); }
  std::vector<std::string> faults() const {
    std::vector<std::string> found;
    index.verify(found);
    return found;
  }

  Layout layout{1, RowType::float32, 0, {}};
  Arena arena;
  Slab slab{arena, nullptr, 0, layout.row_bytes(), 1u << 30};
  Index index;
};

TEST(index_test_secret_is_the_identity) { CHECK_EQ(secret_hash(0x123456789abcdef0).bits, 0x123456789abcdef0u); }

TEST(index_empty_finds_nothing) {
  const Rig rig;
  for (const Key key : {Key{0}, key_at(1, 2, 3, 4), ~Key{0}}) CHECK_EQ(rig.find(key), kNoRow);
  CHECK_EQ(rig.index.entries(), 0u);
  CHECK_EQ(rig.index.splits(), 0u);
}

TEST(index_keys_with_equal_bucket_and_tag_are_told_apart_by_the_row) {
  Rig rig;
  const Key one = key_at(5, 6, 7, 0), other = key_at(5, 6, 7, 1), absent = key_at(5, 6, 7, 2);
  const std::uint32_t row = rig.insert(one), other_row = rig.insert(other);
  CHECK_EQ(rig.find(one), row);
  CHECK_EQ(rig.find(other), other_row);
  CHECK_EQ(rig.find(absent), kNoRow);
  CHECK_EQ(Index::first_match(rig.home(absent), secret_hash(absent)),
           row);  // it may name a stranger, never a later one
}

TEST(index_tag_zero_is_not_an_empty_slot) {
  Rig rig;
  const Key key = key_at(0, 0, 0, 9);
  const std::uint32_t row = rig.insert(key);
  CHECK_EQ(rig.find(key), row);
  CHECK(rig.home(key).tags[0] != 0);
  const Key elsewhere = key_at(0, 0x8000, 0, 9);
  CHECK_EQ(Index::first_match(rig.home(elsewhere), secret_hash(elsewhere)), kNoRow);
}

TEST(index_twelve_keys_fit_a_bucket_and_the_next_overflows) {
  Rig rig;
  std::vector<std::uint32_t> rows;
  for (std::uint32_t i = 0; i < kBucketSlots; ++i) rows.push_back(rig.insert(crowded(0, i)));
  CHECK_EQ(rig.home(crowded(0, 0)).overflow, 0);
  rows.push_back(rig.insert(crowded(0, kBucketSlots)));
  CHECK_EQ(rig.home(crowded(0, 0)).overflow, 1);
  for (std::uint32_t i = 0; i <= kBucketSlots; ++i) CHECK_EQ(rig.find(crowded(0, i)), rows[i]);

  CHECK(rig.erase(crowded(0, 3), rows[3]));  // a hole before it does not hide the key that went further
  CHECK_EQ(rig.find(crowded(0, kBucketSlots)), rows[kBucketSlots]);
  CHECK(rig.erase(crowded(0, kBucketSlots), rows[kBucketSlots]));
  CHECK_EQ(rig.home(crowded(0, 0)).overflow, 0);
  CHECK_EQ(rig.find(crowded(0, kBucketSlots)), kNoRow);
}

TEST(index_last_bucket_overflows_into_the_first) {
  Rig rig;
  std::map<Key, std::uint32_t> rows;
  for (std::uint32_t i = 0; i < 2 * kBucketSlots + 1; ++i)
    rows[crowded(kLastBucket, i)] = rig.insert(crowded(kLastBucket, i));
  const Bucket& last = rig.home(crowded(kLastBucket, 0));
  const Bucket& first = rig.home(crowded(0, 0));
  CHECK_EQ(&last - &first, kBuckets - 1);
  CHECK_EQ(last.overflow, kBucketSlots + 1);
  CHECK_EQ(first.overflow, 1);
  CHECK_EQ((&first)[1].rows[0], rows.at(crowded(kLastBucket, 2 * kBucketSlots)));
  for (const auto& [key, row] : rows) CHECK_EQ(rig.find(key), row);
  for (const auto& [key, row] : rows) CHECK(rig.erase(key, row));
  CHECK_EQ(last.overflow, 0);
  CHECK_EQ(first.overflow, 0);
}

TEST(index_overflow_count_is_exact_up_to_254_and_sticks_at_255) {
  for (const std::uint32_t further : {254u, 255u, 300u}) {
    Rig rig;
    std::vector<std::uint32_t> rows;
    for (std::uint32_t i = 0; i < kBucketSlots + further; ++i) rows.push_back(rig.insert(crowded(0, i)));
    for (std::uint32_t i = 0; i < rows.size(); ++i) CHECK_EQ(rig.find(crowded(0, i)), rows[i]);
    for (std::uint32_t i = 0; i < rows.size(); ++i) CHECK(rig.erase(crowded(0, i), rows[i]));
    CHECK_EQ(rig.home(crowded(0, 0)).overflow, further < 255 ? 0 : 255);
    CHECK_EQ(rig.find(crowded(0, 0)), kNoRow);
    CHECK_EQ(rig.index.entries(), 0u);
  }
}

TEST(index_erase_takes_the_named_row_only) {
  Rig rig;
  const Key key = crowded(4, 1);
  CHECK(!rig.index.erase(secret_hash(key), 0));
  const std::uint32_t row = rig.insert(key);
  CHECK(!rig.index.erase(secret_hash(key), row + 1));
  CHECK_EQ(rig.find(key), row);
  CHECK(rig.erase(key, row));
  CHECK(!rig.index.erase(secret_hash(key), row));
  CHECK_EQ(rig.index.entries(), 0u);
  CHECK_EQ(rig.insert(key), row);  // slot and row are used again
  CHECK_EQ(rig.home(key).tags[1], 0);
}

TEST(index_segment_splits_beyond_85_percent) {
  Rig rig;
  std::mt19937_64 random(1);
  std::unordered_map<Key, std::uint32_t> rows;
  while (rows.size() < kSegmentEntries) {
    const Key key = random();
    rows[key] = rig.insert(key);
  }
  CHECK_EQ(rig.index.splits(), 0u);
  const Key next = random();
  rows[next] = rig.insert(next);
  CHECK_EQ(rig.index.splits(), 1u);
  for (const auto& [key, row] : rows) CHECK_EQ(rig.find(key), row);
  CHECK_EQ(rig.faults().size(), 0u);
}

TEST(index_keys_that_share_directory_bits_split_until_they_differ) {
  Rig rig;
  std::map<Key, std::uint32_t> rows;
  const auto add = [&](std::uint32_t directory, std::uint32_t i) {
    const Key key = key_at(directory, i * 37 % 65536, i % 256, i);
    rows[key] = rig.insert(key);
  };
  for (std::uint32_t i = 0; i < kSegmentEntries / 2; ++i) add(0xaaa000, i), add(0xaaa800, i);  // 12 equal bits
  for (std::uint32_t i = kSegmentEntries; rig.index.splits() == 0; ++i) add(0xaaa000, i);
  CHECK_EQ(rig.index.splits(), 13u);
  for (const auto& [key, row] : rows) CHECK_EQ(rig.find(key), row);
  CHECK_EQ(rig.faults().size(), 0u);
}

TEST(index_is_full_when_all_slots_of_one_directory_entry_are_taken) {
  Rig rig;
  const auto key = [](std::uint32_t i) { return key_at(0x123456, i * 97 % 65536, i % 256, i); };
  std::vector<std::uint32_t> rows;
  for (std::uint32_t i = 0; i < kBuckets * kBucketSlots; ++i) rows.push_back(rig.insert(key(i)));
  const std::uint32_t more = kBuckets * kBucketSlots;
  CHECK_THROWS(std::length_error, "the index is full", rig.insert(key(more)));
  CHECK_EQ(rig.index.entries(), rows.size());
  for (std::uint32_t i = 0; i < rows.size(); ++i) CHECK_EQ(rig.find(key(i)), rows[i]);
  CHECK_EQ(rig.find(key(more)), kNoRow);  // the search ends, though every bucket is full

  CHECK(rig.erase(key(7), rows[7]));
  CHECK_EQ(rig.insert(key(more)), rows[7]);
  CHECK_EQ(rig.find(key(more)), rows[7]);
}

TEST(index_reserve_leaves_nothing_to_split) {
  for (const std::size_t entries : {std::size_t{1}, std::size_t{1170}, std::size_t{1171}, std::size_t{20'000}}) {
    Rig rig;
    rig.index.reserve(entries);
    const std::size_t splits = rig.index.splits();
    CHECK_EQ(splits == 0, entries <= 1170);  // nine tenths of a segment
    std::mt19937_64 random(entries);
    for (std::size_t i = 0; i < entries; ++i) rig.insert(random());
    CHECK_EQ(rig.index.splits(), splits);
    CHECK_EQ(rig.faults().size(), 0u);
  }
}

TEST(index_segments_have_128_to_255_buckets_by_share) {
  const Rig least(0), middle(0.5), most(0.999999);
  constexpr std::size_t rest = 64 + sizeof(void*);  // a segment's header and its directory entry
  CHECK_EQ(least.index.bytes(), 128 * sizeof(Bucket) + rest);
  CHECK_EQ(middle.index.bytes(), 181 * sizeof(Bucket) + rest);
  CHECK_EQ(most.index.bytes(), 255 * sizeof(Bucket) + rest);
}

TEST(index_verify_tells_a_lost_entry) {
  Rig rig;
  rig.insert(crowded(0, 1));
  CHECK_EQ(rig.faults().size(), 0u);
  const_cast<Bucket&>(rig.home(crowded(0, 1))).tags[0] = 0;
  const auto faults = rig.faults();
  CHECK_EQ(faults.size(), 2u);
  CHECK_EQ(faults[0], "index: a segment counts 1 entries but holds 0");
  CHECK_EQ(faults[1], "index: counts 1 entries but holds 0");
}

// Few distinct buckets and tags, so that overflow, equal tags, splits and holes meet.
Key drawn_key(std::mt19937_64& random) {
  return key_at(static_cast<std::uint32_t>(random() % 4) << 21, static_cast<std::uint32_t>(random() % 8) << 12,
                static_cast<std::uint32_t>(random() % 4), static_cast<std::uint32_t>(random() % 64));
}

TEST(index_equals_an_unordered_map_under_random_operations) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    Rig rig(static_cast<double>(seed) / 4);
    std::mt19937_64 random(seed);
    std::unordered_map<Key, std::uint32_t> twin;
    for (int operation = 0; operation < 40'000; ++operation) {
      const Key key = seed % 2 == 0 ? drawn_key(random) : random() % 8192 * kGolden;
      const auto known = twin.find(key);
      CHECK_EQ(rig.find(key), known == twin.end() ? kNoRow : known->second);
      const bool grow = operation / 8000 % 2 == 0;
      if (known == twin.end()) {
        if (grow || random() % 4 == 0) twin[key] = rig.insert(key);
      } else if (!grow || random() % 4 == 0) {
        CHECK(rig.erase(key, known->second));
        twin.erase(known);
      }
      CHECK_EQ(rig.index.entries(), twin.size());
    }
    for (const auto& [key, row] : twin) CHECK_EQ(rig.find(key), row);
    CHECK_EQ(rig.faults().size(), 0u);
    CHECK(rig.index.splits() > 0);
  }
}

}  // namespace
}  // namespace hotrow::store
