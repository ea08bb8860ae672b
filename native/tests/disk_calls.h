// Random calls on a disk tier whose disk fails now and then, and what each of its rows may be after them.
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/check.h"
#include "tests/disk_rig.h"

namespace hotrow::tests {

constexpr std::size_t kPages = 2 * kPage;   // of the index in memory
constexpr std::uint64_t kNumbers = 12'000;  // more pages than a call brings at a time
constexpr int kSteps = 60, kStepsOfFault = 6;

struct Fault {
  const char* name;
  bool of_index;
  DiskFaults::Kind kind;
  int error;
};
constexpr Fault kDiskFaults[] = {
    {"index read EIO", true, DiskFaults::read, EIO},
    {"index write EIO", true, DiskFaults::write, EIO},
    {"index write ENOSPC", true, DiskFaults::write, ENOSPC},
    {"index short write", true, DiskFaults::short_write, ENOSPC},
    {"index no memory", true, DiskFaults::no_memory, 0},
    {"row read EIO", false, DiskFaults::read, EIO},
    {"row write EIO", false, DiskFaults::write, EIO},
    {"row write ENOSPC", false, DiskFaults::write, ENOSPC},
    {"row short write", false, DiskFaults::short_write, ENOSPC},
    {"row no memory", false, DiskFaults::no_memory, 0},
};

// Of a run of many: HOTROW_SEED=1, 2, ... draws other calls.
inline unsigned first_seed() {
  const char* text = std::getenv("HOTROW_SEED");
  return text == nullptr ? 0 : 1000 * static_cast<unsigned>(std::atoi(text));
}

// A bit for each stamp that a row may have; bit 0: there is no row. Plain memory, which a killed process can share.
struct AllowedRows {
  using Stamps = std::array<std::atomic<std::uint64_t>, kNumbers>;

  Stamps now;         // in the tier
  Stamps after_kill;  // in a tier that opens its files after a kill
  std::atomic<int> step{0};

  AllowedRows() {
    for (std::uint64_t number = 0; number < kNumbers; ++number) now[number] = after_kill[number] = 1;
  }
  void add(std::uint64_t number, int stamp) {
    now[number] |= std::uint64_t{1} << stamp;
    after_kill[number] |= std::uint64_t{1} << stamp;
  }
  static void check(const std::string& where, const Stamps& stamps, std::span<const std::uint64_t> numbers,
                    const std::map<std::uint64_t, float>& found) {
    for (const std::uint64_t number : numbers) {
      const auto row = found.find(number);
      const float stamp = row == found.end() ? 0 : row->second;
      if (stamp < 0 || (stamps[number] >> static_cast<int>(stamp) & 1) == 0)
        fail(__FILE__, __LINE__, where + ": number " + std::to_string(number) + " has stamp " + std::to_string(stamp));
    }
  }
};

class RandomCalls {
 public:
  RandomCalls(DiskRig& rig, AllowedRows& allowed, unsigned seed) : rig_(rig), allowed_(allowed), chance_(seed) {}

  // The disk fails in the last of every few calls, and is whole again after it.
  void fail_at_times(const Fault& fault) { fault_ = &fault; }

  // False: the disk failed, and the call said so.
  bool call(int step) {
    DiskFaults* faults = nullptr;
    if (fault_ != nullptr) {
      faults = fault_->of_index ? &rig_.index_faults : &rig_.rows_faults;
      if (step % kStepsOfFault == 0) faults->start(fault_->kind, fault_->error, static_cast<int>(chance_() % 12), 3);
    }
    const bool whole = make(step);
    if (faults != nullptr && step % kStepsOfFault == kStepsOfFault - 1) faults->end();
    return whole;
  }
  void check() {
    const auto faults = rig_.tier->verify();
    if (!faults.empty()) fail(__FILE__, __LINE__, faults.front());
    AllowedRows::check("after faults", allowed_.now, all_, rig_.read(all_));
  }

 private:
  bool make(int step) {
    std::set<std::uint64_t> drawn;
    while (drawn.size() < 1000) drawn.insert(chance_() % kNumbers);
    const std::vector<std::uint64_t> numbers(drawn.begin(), drawn.end());
    const auto kind = chance_() % 9;
    const int to = kind == 5 ? 0 : step;
    const bool changes = kind <= 5;
    if (changes)
      for (const std::uint64_t number : numbers) allowed_.add(number, to);
    try {
      if (kind < 5)
        rig_.write(numbers, static_cast<float>(step));
      else if (kind == 5)
        rig_.erase(numbers);
      else if (kind == 6)
        rig_.tier->compact();
      else if (kind == 7)
        rig_.tier->flush();
      else
        AllowedRows::check("beside faults", allowed_.now, numbers, rig_.read(numbers));
    } catch (const DiskError& error) {
      CHECK(std::string(error.what()).starts_with("disk file "));
      return false;
    } catch (const std::bad_alloc&) {
      return false;
    }
    if (changes) {
      for (const std::uint64_t number : numbers) {
        allowed_.now[number] = std::uint64_t{1} << to;
        if (rig_.staged()) allowed_.after_kill[number] = std::uint64_t{1} << to;  // the call has ended: it is kept
      }
    } else if (kind == 7) {
      for (std::uint64_t number = 0; number < kNumbers; ++number)
        allowed_.after_kill[number] = allowed_.now[number].load();
    }
    return true;
  }

  DiskRig& rig_;
  AllowedRows& allowed_;
  const Fault* fault_ = nullptr;
  std::mt19937_64 chance_;
  std::vector<std::uint64_t> all_ = numbers_from(0, kNumbers);
};

}  // namespace hotrow::tests
