// A process that is killed in the middle of its calls, on a disk that fails now and then: whoever opens the files next
// finds every row that was flushed, and with staged extents every row of a call that had ended.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <new>
#include <thread>

#include "tests/check.h"
#include "tests/disk_calls.h"
#include "tests/disk_rig.h"

namespace hotrow::tests {
namespace {

constexpr std::uint64_t kCapacity = 2 << 20;  // extents are emptied and used again all the time
constexpr int kStopped = 7;                   // steps after a kill

// AllowedRows in memory that a forked child shares.
class SharedRows {
 public:
  SharedRows() {
    void* memory = mmap(nullptr, sizeof(AllowedRows), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    rows_ = new (memory) AllowedRows;
  }
  ~SharedRows() { munmap(static_cast<void*>(rows_), sizeof(AllowedRows)); }
  SharedRows(const SharedRows&) = delete;
  SharedRows& operator=(const SharedRows&) = delete;
  AllowedRows& operator*() const { return *rows_; }
  AllowedRows* operator->() const { return rows_; }

 private:
  AllowedRows* rows_;
};

struct Kill {
  std::optional<std::size_t> pages;
  bool staged;
  const Fault* fault;
  unsigned seed;
};

// In the child. It ends with 0 where it was not killed.
int make_calls(const Kill& kill, const std::filesystem::path& folder, AllowedRows& allowed) {
  try {
    DiskRig rig(kill.pages, kCapacity, kill.staged, folder);
    RandomCalls calls(rig, allowed, kill.seed);
    if (kill.fault != nullptr) calls.fail_at_times(*kill.fault);
    for (int step = 1; step < kSteps; ++step) {
      allowed.step = step;
      calls.call(step);
    }
    allowed.step = kSteps;
    pause();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

void kill_and_open(const Kill& kill) {
  std::mt19937_64 chance(kill.seed);
  const SharedRows allowed;
  const std::filesystem::path folder = DiskRig::fresh_folder();
  const int last = static_cast<int>(5 + chance() % (kSteps - 4));
  const auto later = std::chrono::microseconds(chance() % 3000);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) _exit(make_calls(kill, folder, *allowed));
  int status = 0;
  while (allowed->step < last && waitpid(child, &status, WNOHANG) == 0)
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  CHECK(allowed->step >= last);  // it says on stderr why it ended
  std::this_thread::sleep_for(later);
  CHECK_EQ(::kill(child, SIGKILL), 0);
  CHECK_EQ(waitpid(child, &status, 0), child);
  CHECK(WIFSIGNALED(status));

  DiskRig rig(kill.pages, kCapacity, kill.staged, folder);
  const auto faults = rig.tier->verify();
  if (!faults.empty()) fail(__FILE__, __LINE__, faults.front());
  const auto all = numbers_from(0, kNumbers);
  const auto found = rig.read(all);
  AllowedRows::check("after a kill", allowed->after_kill, all, found);
  for (const std::uint64_t number : all) {
    const auto row = found.find(number);
    allowed->now[number] = std::uint64_t{1} << (row == found.end() ? 0 : static_cast<int>(row->second));
  }
  RandomCalls calls(rig, *allowed, kill.seed + 1);
  for (int step = kSteps - kStopped; step < kSteps; ++step) calls.call(step);
  calls.check();
  rig.reopen();
  calls.check();
}

void kill_often(bool staged) {
  unsigned seed = first_seed();
  const auto once = [&](const Fault* fault, bool paged) {
    const Kill kill{paged ? std::optional(kPages) : std::nullopt, staged, fault, seed++};
    try {
      kill_and_open(kill);
    } catch (const std::exception& error) {
      fail(__FILE__, __LINE__,
           std::string(fault == nullptr ? "no fault" : fault->name) + (paged ? ", paged" : "") + ", seed " +
               std::to_string(kill.seed) + ": " + error.what());
    }
  };
  for (int turn = 0; turn < 4; ++turn)
    for (const bool paged : {false, true}) once(nullptr, paged);
  for (const Fault& fault : kDiskFaults)
    for (const bool paged : {false, true})
      if (paged || !fault.of_index) once(&fault, paged);
}

TEST(disk_rows_that_were_flushed_are_there_after_a_kill) { kill_often(false); }

TEST(disk_rows_that_were_staged_are_there_after_a_kill) { kill_often(true); }

}  // namespace
}  // namespace hotrow::tests
