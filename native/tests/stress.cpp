// Many threads on one table, and on one disk tier, built with ThreadSanitizer: cmake -DHOTROW_MODULE=OFF
// -DHOTROW_TESTS=ON -DHOTROW_SANITIZE=thread. Exits 0 when no row lost an update and the structure is sound; the
// sanitizer adds its own exit code for any race it saw.
#include <atomic>
#include <cmath>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "store/ram_tier.h"
#include "tests/stress_disk.h"

using namespace hotrow::store;

namespace {

constexpr std::size_t kDim = 8;
constexpr std::size_t kKeys = 6000;   // shared by all threads, so that they meet on the same rows
constexpr std::size_t kBatch = 4096;  // large enough for the pool's threads
constexpr int kRounds = 12;

std::vector<Key> random_keys(std::mt19937_64& random, Key base) {
  std::vector<Key> keys(kBatch);
  for (Key& key : keys) key = base + random() % kKeys;
  return keys;
}

// Adds one to every value of every key, so the table's sum tells whether an update was lost.
void trainer(RamTier& tier, unsigned seed, std::atomic<std::uint64_t>& updates) {
  std::mt19937_64 random(seed);
  std::vector<float> out(kBatch * kDim), gradients(kBatch * kDim, -1.0f);
  for (int round = 0; round < kRounds; ++round) {
    Batch batch = tier.batch(random_keys(random, 0), 2);
    tier.find_or_init(batch, out.data(), Per::key, {}, 2);
    tier.apply(batch, {gradients.data(), nullptr, nullptr}, Per::key, {static_cast<std::uint64_t>(round), 0}, 2);
    updates += kBatch;
  }
}

void reader(const RamTier& tier, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<float> out(kBatch * kDim);
  std::vector<std::uint32_t> versions(kBatch);
  for (int round = 0; round < kRounds; ++round) {
    Batch batch = tier.batch(random_keys(random, 0), 2);
    tier.find(batch, out.data(), Per::key, 2);
    tier.read(batch, kVersion, versions.data(), 2);
  }
}

// Rows of its own range come and go, so segments split and free rows are reused beside everybody else.
void eraser(RamTier& tier, unsigned seed) {
  std::mt19937_64 random(seed);
  for (int round = 0; round < kRounds; ++round) {
    Batch fresh = tier.batch(random_keys(random, 1u << 20), 2);
    tier.find_or_init(fresh, nullptr, Per::key, {}, 2);
    tier.erase(fresh, 2);
  }
}

std::vector<Key> random_keys_of(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  return random_keys(random, 0);
}

// Columns of its own for whole rows of any table here.
struct Chunk {
  Chunk() : keys(1000), values(keys.size() * kDim), fields(keys.size() * kExportedFields) {
    columns.keys = keys.data();
    columns.values = values.data();
    for (int field = 0; field < kExportedFields; ++field) columns.fields[field] = &fields[field * keys.size()];
  }

  std::vector<Key> keys;
  std::vector<float> values;
  std::vector<std::uint32_t> fields;
  Columns columns;
};

void exporter(const RamTier& tier) {
  const Chunk chunk;
  for (int round = 0; round < kRounds; ++round) {
    std::uint64_t cursor = 0;
    while (tier.export_rows(cursor, chunk.keys.size(), chunk.columns) != 0) {
    }
    tier.stats();
    tier.verify();
  }
}

// Cuts one after the other, of all rows and of changes; some are given up in the middle. Returns whether all had their
// rows.
bool cutter(RamTier& tier) {
  const Chunk chunk;
  bool whole = true;
  tier.track_changes(true);
  for (int round = 0; round < 2 * kRounds; ++round) {
    const CutFacts facts = tier.begin_cut(round % 3 != 0);
    std::size_t rows = 0, read = 0;
    do {
      read = tier.cut_rows(chunk.keys.size(), chunk.columns);
      rows += read;
      tier.cut_copied_bytes();
    } while (read != 0 && round % 5 != 4);
    if (round % 3 == 0 && round % 5 != 4)
      whole = whole && rows <= facts.rows && (tier.samples() != 0 || rows == facts.rows);
    tier.cut_removed();
    tier.cut_waiting(0);
    tier.cut_filter(0);
    tier.end_cut(round % 5 != 4 || round % 3 == 0);
  }
  tier.track_changes(false);
  return whole;
}

// A table that evicts and expires under the same hands: its sums are not known, but it must stay sound and within its
// capacity.
bool full_table_stays_sound(Eviction eviction) {
  Optimizer sgd;
  LifeSpec life;
  life.capacity_rows = kKeys / 2;
  life.eviction = eviction;
  life.expiry = 4 * kBatch;
  life.admission = {AdmissionKind::at_least, 2, 4096, 1};
  life.keep_evicted = true;
  RamTier tier({kDim, RowType::bfloat16, sgd, {InitKind::uniform, 1, 1}, life, false, false, 2});
  std::atomic<std::uint64_t> updates{0};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 2; ++seed) threads.emplace_back([&, seed] { trainer(tier, seed, updates); });
  threads.emplace_back([&] { reader(tier, 100); });
  threads.emplace_back([&] { eraser(tier, 200); });
  std::atomic<bool> whole{true};
  threads.emplace_back([&] { whole = cutter(tier); });
  threads.emplace_back([&] {
    std::vector<Key> gone;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      Batch batch = tier.batch(random_keys_of(round), 1);
      tier.touch(batch, {true, round * kBatch}, 2);
      tier.expire(round * kBatch, 2);
      tier.take_gone_keys(gone);
      tier.eviction_order(0);
      tier.stats();
    }
  });
  for (std::thread& thread : threads) thread.join();
  for (const auto& fault : tier.verify()) std::fprintf(stderr, "%s\n", fault.c_str());
  return whole && tier.verify().empty() && tier.size() <= life.capacity_rows;
}

}  // namespace

int main() {
  Optimizer sgd;
  sgd.lr = 1;
  RamTier tier({kDim, RowType::float32, sgd, {InitKind::constant, 0, 1}, {}, false, false, 3});
  std::atomic<std::uint64_t> updates{0};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 3; ++seed) threads.emplace_back([&, seed] { trainer(tier, seed, updates); });
  threads.emplace_back([&] { reader(tier, 100); });
  threads.emplace_back([&] { eraser(tier, 200); });
  threads.emplace_back([&] { exporter(tier); });
  std::atomic<bool> whole{true};
  threads.emplace_back([&] { whole = cutter(tier); });
  for (std::thread& thread : threads) thread.join();

  std::vector<Key> keys(kKeys);
  for (std::size_t i = 0; i < kKeys; ++i) keys[i] = i;
  std::vector<float> values(kKeys * kDim);
  Batch batch = tier.batch(keys, 1);
  tier.find(batch, values.data(), Per::key, 1);
  double sum = 0;
  for (const float value : values) sum += std::isnan(value) ? 0 : double{value};
  for (const auto& fault : tier.verify()) std::fprintf(stderr, "%s\n", fault.c_str());
  std::printf("%llu updates, sum %.0f\n", static_cast<unsigned long long>(updates.load()), sum);
  const bool sound = whole && tier.verify().empty() && sum == static_cast<double>(updates) * kDim;
  const bool full = full_table_stays_sound(Eviction::lru) && full_table_stays_sound(Eviction::lfu);
  const bool disk = hotrow::tests::disk_tier_stays_sound({}) && hotrow::tests::disk_tier_stays_sound(32 << 10);
  return sound && full && disk ? 0 : 1;
}
