// A disk that fails in the middle of a call: the call says so, no row is lost, and the tier goes on or says why not.
#include <cerrno>
#include <random>
#include <set>

#include "tests/check.h"
#include "tests/disk_rig.h"

namespace hotrow::tests {
namespace {

constexpr std::size_t kPages = 2 * kPage;   // of the index in memory
constexpr std::uint64_t kNumbers = 12'000;  // more pages than a call brings at a time

struct Fault {
  const char* name;
  bool of_index;
  DiskFaults::Kind kind;
  int error;
};
constexpr Fault kFaults[] = {
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

// What each number may be; 0: it has no row.
using Allowed = std::map<std::uint64_t, std::set<float>>;

void check_allowed(const std::string& where, const Allowed& allowed, const std::map<std::uint64_t, float>& found) {
  for (const auto& [number, stamps] : allowed) {
    const auto row = found.find(number);
    const float stamp = row == found.end() ? 0 : row->second;
    if (!stamps.contains(stamp))
      fail(__FILE__, __LINE__, where + ": number " + std::to_string(number) + " has stamp " + std::to_string(stamp));
  }
}

// Random calls while the disk fails now and then; a call that raises may have changed some of its rows.
class Trial {
 public:
  Trial(const Fault& fault, bool paged, bool staged, unsigned seed)
      : rig_(paged ? std::optional(kPages) : std::nullopt, 4 << 20, staged),
        staged_(staged),
        fault_(fault),
        chance_(seed) {
    for (std::uint64_t number = 0; number < kNumbers; ++number) allowed_[number] = {0};
  }

  int run() {
    DiskFaults& faults = fault_.of_index ? rig_.index_faults : rig_.rows_faults;
    int raised = 0;
    for (int step = 1; step <= 60; ++step) {
      if (step % 6 == 0) faults.start(fault_.kind, fault_.error, static_cast<int>(chance_() % 12), 3);
      raised += !call(static_cast<float>(step));
      if (step % 6 != 5) continue;
      faults.end();
      check();
    }
    faults.end();
    check();
    if (staged_)
      rig_.tier->compact();  // rows that a thread moves while the file is copied would be missed
    else
      rig_.tier->flush();
    check_allowed("after a kill", allowed_, rig_.read_after_kill(all_));
    rig_.reopen();
    check();
    return raised;
  }

 private:
  // False: the disk failed, and the call said so.
  bool call(float stamp) {
    std::set<std::uint64_t> drawn;
    while (drawn.size() < 1000) drawn.insert(chance_() % kNumbers);
    const std::vector<std::uint64_t> numbers(drawn.begin(), drawn.end());
    const auto kind = chance_() % 8;
    const float to = kind == 5 ? 0 : stamp;
    const bool changes = kind <= 5;
    if (changes)
      for (const std::uint64_t number : numbers) allowed_[number].insert(to);
    try {
      if (kind < 5)
        rig_.write(numbers, stamp);
      else if (kind == 5)
        rig_.erase(numbers);
      else if (kind == 6)
        rig_.tier->compact();
      else
        check_read(numbers);
    } catch (const DiskError& error) {
      CHECK(std::string(error.what()).starts_with("disk file "));
      return false;
    } catch (const std::bad_alloc&) {
      return false;
    }
    if (changes)
      for (const std::uint64_t number : numbers) allowed_[number] = {to};
    return true;
  }
  void check_read(const std::vector<std::uint64_t>& numbers) {
    const auto found = rig_.read(numbers);
    Allowed those;
    for (const std::uint64_t number : numbers) those[number] = allowed_[number];
    check_allowed("beside faults", those, found);
  }
  void check() {
    const auto faults = rig_.tier->verify();
    if (!faults.empty()) fail(__FILE__, __LINE__, faults.front());
    check_allowed("after faults", allowed_, rig_.read(all_));
  }

  DiskRig rig_;
  bool staged_;
  const Fault& fault_;
  std::mt19937_64 chance_;
  Allowed allowed_;
  std::vector<std::uint64_t> all_ = numbers_from(0, kNumbers);
};

void try_faults(bool staged) {
  for (const Fault& fault : kFaults) {
    for (const bool paged : {false, true}) {
      if (fault.of_index && !paged) continue;
      int raised = 0;
      for (unsigned seed = 0; seed < (staged ? 1 : 3); ++seed) {
        try {
          raised += Trial(fault, paged, staged, seed).run();
        } catch (const std::exception& error) {
          fail(__FILE__, __LINE__,
               std::string(fault.name) + (paged ? ", paged" : "") + ", seed " + std::to_string(seed) + ": " +
                   error.what());
        }
      }
      if (raised == 0) fail(__FILE__, __LINE__, std::string(fault.name) + ": no call met the fault");
    }
  }
}

TEST(disk_faults_lose_no_row_and_the_tier_goes_on) { try_faults(false); }

TEST(disk_faults_lose_no_row_that_is_staged) { try_faults(true); }

// Slots of the failed call are in the open extent, behind those that count: a flush would write them, and the next
// process would take them for newer than what was written since.
TEST(disk_rows_of_a_call_that_failed_are_not_there_after_a_kill) {
  for (const bool erases : {false, true}) {
    DiskRig rig(kPages);
    const auto all = numbers_from(0, kNumbers);
    rig.write(all, 1);
    rig.tier->flush();
    rig.index_faults.start(DiskFaults::read, EIO);
    if (erases)
      CHECK_THROWS(DiskError, "cannot be read at byte", rig.erase(numbers_from(0, 60)));
    else
      CHECK_THROWS(DiskError, "cannot be read at byte", rig.write(numbers_from(0, 60), 2));
    rig.index_faults.end();
    const std::uint64_t one[] = {50};
    rig.write(one, 3);
    rig.tier->flush();
    const auto found = rig.read_after_kill(all);
    CHECK_EQ(found.size(), kNumbers);
    for (const auto& [number, stamp] : found) CHECK_EQ(stamp, number == 50 ? 3.0f : 1.0f);
  }
}

TEST(disk_index_that_cannot_grow_refuses_and_changes_nothing) {
  DiskRig rig(kPages);
  const auto some = numbers_from(0, 100);
  rig.index_faults.start(DiskFaults::grow, ENOSPC);
  CHECK_THROWS(DiskFullError, "cannot grow from 0 to 1048576 bytes", rig.write(some, 1));
  CHECK_EQ(rig.tier->size(), 0u);
  rig.index_faults.end();
  rig.write(some, 2);
  CHECK_EQ(rig.read(some).at(7), 2.0f);
}

TEST(disk_reads_that_failed_do_not_keep_their_extents) {
  DiskRig rig(kPages, 3 << 20);
  const auto all = numbers_from(0, kNumbers);
  rig.write(all, 1);
  rig.tier->flush();
  for (int skip = 0; skip < 8; ++skip) {
    rig.index_faults.start(DiskFaults::read, EIO, skip);
    CHECK_THROWS(DiskError, "cannot be read", rig.read(all));
    rig.index_faults.end();
  }
  for (float stamp = 2; stamp < 12; ++stamp) rig.write(all, stamp);  // several times the file: extents are used again
  CHECK(rig.tier->stats().reused_extents > 20);
}

TEST(disk_index_pages_that_the_disk_lost_are_refused_and_a_new_index_has_all_rows) {
  DiskRig rig(kPages);
  const auto all = numbers_from(0, kNumbers);
  rig.write(all, 1);
  rig.index_faults.start(DiskFaults::lost_write, 0);
  rig.write(numbers_from(0, 60), 2);  // of one part: it reads no page again
  rig.index_faults.end();
  CHECK_THROWS(DiskError, "is not what was written: look at the disk, and open the rows again", rig.read(all));
  rig.reopen();
  const auto found = rig.read(all);
  CHECK_EQ(found.size(), kNumbers);
  for (const auto& [number, stamp] : found) CHECK_EQ(stamp, number < 60 ? 2.0f : 1.0f);
}

TEST(disk_that_failed_to_flush_is_not_trusted_again) {
  DiskRig rig(std::nullopt);
  const auto some = numbers_from(0, 100);
  rig.write(some, 1);
  rig.tier->flush();
  rig.rows_faults.start(DiskFaults::sync, EIO, 0, 1);
  rig.write(some, 2);
  CHECK_THROWS(DiskError, "could not be flushed and takes no more rows", rig.tier->flush());
  rig.rows_faults.end();
  CHECK_THROWS(DiskError, "open the file again", rig.tier->flush());  // the system would answer that all is well
  CHECK_THROWS(DiskError, "open the file again", rig.write(some, 3));
  CHECK_THROWS(DiskError, "open the file again", rig.erase(some));
  CHECK_EQ(rig.read(some).at(7), 2.0f);
  CHECK_THROWS(DiskError, "open the file again", rig.tier->close(false));
  rig.open();
  CHECK_EQ(rig.read(some).at(7), 2.0f);  // this disk had written it
  rig.write(some, 4);
  rig.tier->flush();
}

TEST(disk_cuts_read_the_same_rows_again_after_a_fault) {
  DiskRig rig(std::nullopt);
  rig.write(numbers_from(0, 1000), 1);
  rig.tier->flush();
  rig.reopen();  // nothing is in memory
  const auto snapshot = rig.tier->snapshot();
  std::vector<Key> keys(400);
  std::vector<float> values(keys.size() * kRigDim);
  std::size_t rows = 0;
  for (int turn = 0; turn < 20; ++turn) {
    rig.rows_faults.start(DiskFaults::read, EIO, 0, turn % 2);
    try {
      rows += snapshot->next(keys.size(), {keys.data(), values.data(), nullptr, {}});
    } catch (const DiskError&) {
      CHECK(turn % 2 == 1);
    }
  }
  CHECK_EQ(rows, 1000u);
  rig.rows_faults.end();
  CHECK_EQ(snapshot->next(keys.size(), {keys.data(), values.data(), nullptr, {}}), 0u);
}

TEST(disk_files_that_cannot_be_read_are_not_opened_and_stay) {
  DiskRig rig(kPages);
  const auto all = numbers_from(0, kNumbers);
  rig.write(all, 1);
  rig.tier->close(false);
  for (const auto& fault : kFaults) {
    if (fault.kind == DiskFaults::no_memory || (!fault.of_index && fault.kind != DiskFaults::read)) continue;
    DiskFaults& faults = fault.of_index ? rig.index_faults : rig.rows_faults;
    faults.start(fault.kind, fault.error, 1);
    CHECK_THROWS(DiskError, "disk file ", rig.open());
    faults.end();
  }
  rig.open();
  CHECK_EQ(rig.read(all).size(), kNumbers);
}

}  // namespace
}  // namespace hotrow::tests
