// A disk that fails in the middle of a call: the call says so, no row is lost, and the tier goes on or says why not.
#include <cerrno>
#include <chrono>
#include <thread>

#include "tests/check.h"
#include "tests/disk_calls.h"
#include "tests/disk_rig.h"

namespace hotrow::tests {
namespace {

// Random calls while the disk fails now and then; a call that raises may have changed some of its rows.
int run_trial(const Fault& fault, bool paged, bool staged, unsigned seed) {
  DiskRig rig(paged ? std::optional(kPages) : std::nullopt, 4 << 20, staged, DiskRig::fresh_folder());
  const auto allowed = std::make_unique<AllowedRows>();
  RandomCalls calls(rig, *allowed, seed);
  calls.fail_at_times(fault);
  int raised = 0;
  for (int step = 1; step <= kSteps; ++step) {
    raised += !calls.call(step);
    if (step % kStepsOfFault == kStepsOfFault - 1) calls.check();
  }
  rig.rows_faults.end();
  rig.index_faults.end();
  calls.check();
  rig.reopen();
  calls.check();
  return raised;
}

void try_faults(bool staged) {
  for (const Fault& fault : kDiskFaults) {
    for (const bool paged : {false, true}) {
      if (fault.of_index && !paged) continue;
      int raised = 0;
      for (unsigned seed = 0; seed < (staged ? 1 : 3); ++seed) {
        try {
          raised += run_trial(fault, paged, staged, first_seed() + seed);
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

// An extent with rows and their erasures is emptied, and of its two headers on disk only one is replaced. The erasures
// are in the page of the other one.
TEST(disk_rows_erased_in_an_extent_that_could_not_be_emptied_stay_erased) {
  DiskRig rig(std::nullopt);
  const std::uint64_t slots = rig.tier->stats().slots_per_extent, erased = 50;
  const auto kept = numbers_from(erased, slots - erased);
  rig.write(numbers_from(0, slots - erased), 1);
  CHECK_EQ(rig.erase(numbers_from(0, erased)), erased);
  rig.rows_faults.only_at = rig.tier->stats().extent_bytes;  // there the first extent begins
  rig.rows_faults.start(DiskFaults::write, EIO, 1);          // it is written once, with its rows
  rig.write(kept, 2);
  for (int turn = 0; turn < 10'000 && rig.rows_faults.made == 0; ++turn) {
    try {
      rig.tier->compact();
    } catch (const DiskError&) {  // or the cleaning thread has met it
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(rig.rows_faults.made > 0);
  rig.tier->close(false);
  rig.rows_faults.end();
  rig.open();
  const auto found = rig.read(numbers_from(0, slots));
  CHECK_EQ(found.size(), kept.size());
  for (const auto& [number, stamp] : found) CHECK_EQ(stamp, 2.0f);
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
  for (const Fault& fault : kDiskFaults) {
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
