// Many threads on one disk tier, with its index in memory and in a file: readers beside two writers, compaction and
// cuts.
#include "tests/stress_disk.h"

#include <cstdio>
#include <random>
#include <thread>

#include "tests/disk_rig.h"

namespace hotrow::tests {
namespace {

constexpr std::uint64_t kNumbers = 12'000;  // more pages of the index than a call brings at a time
constexpr int kRounds = 40;

std::vector<std::uint64_t> draw(std::mt19937_64& random, std::uint64_t first, std::uint64_t end, std::size_t count) {
  std::vector<std::uint64_t> numbers(count);
  for (std::uint64_t& number : numbers) number = first + random() % (end - first);
  std::ranges::sort(numbers);
  numbers.erase(std::ranges::unique(numbers).begin(), numbers.end());
  return numbers;
}

struct Shared {
  DiskRig rig;
  std::atomic<bool> ended{false};
  std::atomic<int> wrong{0};
};

// Numbers of its own half; those of the last tenth come and go.
void writer(Shared& shared, std::uint64_t half) {
  std::mt19937_64 random(half);
  const std::uint64_t first = half * kNumbers / 2, end = first + kNumbers / 2, steady = end - kNumbers / 20;
  for (int round = 0; round < kRounds; ++round) {
    shared.rig.write(draw(random, first, steady, 700), static_cast<float>(round + 2));
    const auto passing = draw(random, steady, end, 200);
    shared.rig.write(passing, 1);
    shared.rig.erase(passing);
    if (round % 8 == 7) shared.rig.tier->flush();
  }
}

// Rows are whole, and never older than they were.
void reader(Shared& shared, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<float> seen(kNumbers);
  while (!shared.ended) {
    const auto numbers = draw(random, 0, kNumbers * 9 / 20, 300);
    const auto found = shared.rig.read(numbers);
    if (found.size() != numbers.size()) ++shared.wrong;
    for (const auto& [number, stamp] : found) {
      if (stamp < seen[number]) ++shared.wrong;
      seen[number] = stamp;
    }
  }
}

void cutter(Shared& shared) {
  std::optional<std::uint64_t> saved;
  std::vector<Key> keys(500);
  std::vector<float> values(keys.size() * kRigDim);
  for (int round = 0; !shared.ended; ++round) {
    DiskTier::Cut cut = shared.rig.tier->begin_cut(round % 3 == 0 ? std::nullopt : saved);
    const bool whole = !saved || round % 3 == 0;
    std::size_t rows = 0, expected = cut.rows->rows(), more = 0;
    while ((more = cut.rows->next(keys.size(), {keys.data(), values.data(), nullptr, {}})) != 0) rows += more;
    if (rows != expected || (whole && rows < kNumbers * 9 / 10)) ++shared.wrong;
    if (round % 4 != 3) saved = cut.number;
    shared.rig.tier->end_cut(cut, round % 4 != 3);
  }
}

void keeper(Shared& shared) {
  std::mt19937_64 random(5);
  while (!shared.ended) {
    shared.rig.tier->compact();
    shared.rig.tier->stats();
    shared.rig.tier->room_rows();
    if (const auto faults = shared.rig.tier->verify(); !faults.empty()) {
      std::fprintf(stderr, "%s\n", faults.front().c_str());
      ++shared.wrong;
    }
    std::vector<Key> keys;
    for (const std::uint64_t number : draw(random, kNumbers, 2 * kNumbers, 100))
      keys.push_back(DiskRig::key_of(number));
    const auto there = std::make_unique<bool[]>(keys.size());
    shared.rig.tier->contains(keys, true, there.get());
    shared.rig.tier->shadow(keys);
  }
}

}  // namespace

bool disk_tier_stays_sound(std::optional<std::size_t> index_cache) {
  Shared shared{DiskRig(index_cache, 8 << 20)};
  shared.rig.write(numbers_from(0, kNumbers), 1);
  std::vector<std::thread> writers, others;
  for (std::uint64_t half = 0; half < 2; ++half) writers.emplace_back([&shared, half] { writer(shared, half); });
  for (unsigned seed = 0; seed < 2; ++seed) others.emplace_back([&shared, seed] { reader(shared, seed); });
  others.emplace_back([&] { cutter(shared); });
  others.emplace_back([&] { keeper(shared); });
  for (std::thread& thread : writers) thread.join();
  shared.ended = true;
  for (std::thread& thread : others) thread.join();
  const bool compacted = shared.rig.tier->stats().compacted_extents > 0;
  shared.rig.reopen();
  const std::size_t rows = shared.rig.tier->size();
  std::printf("disk, index %s: %d wrong, %zu rows\n", index_cache ? "in a file" : "in memory", shared.wrong.load(),
              rows);
  return shared.wrong == 0 && compacted && rows >= kNumbers * 9 / 10 && shared.rig.tier->verify().empty();
}

}  // namespace hotrow::tests
