#include "store/numa.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace hotrow::store {
namespace {

constexpr int kInterleave = 3;  // MPOL_INTERLEAVE of <linux/mempolicy.h>, which not every system has

std::atomic<std::uint64_t> interleaved_nodes{0};
std::atomic<std::size_t> interleaved{0}, refused{0};

int bind_memory([[maybe_unused]] void* address, [[maybe_unused]] std::size_t bytes,
                [[maybe_unused]] std::uint64_t nodes) {
#if defined(SYS_mbind)
  const unsigned long mask = nodes;
  // One more than there are bits: the kernel takes one off.
  return syscall(SYS_mbind, address, bytes, kInterleave, &mask, kNodesMax + 1, 0) == 0 ? 0 : errno;
#else
  return ENOSYS;
#endif
}

int try_on_a_page(std::uint64_t nodes) {
  const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return errno;
  const int error = bind_memory(page, bytes, nodes);
  munmap(page, bytes);
  return error;
}

}  // namespace

int set_interleave(std::uint64_t nodes) {
  const int error = nodes == 0 ? 0 : try_on_a_page(nodes);
  interleaved_nodes.store(error == 0 ? nodes : 0);
  return error;
}

void interleave_block(void* address, std::size_t bytes) {
  const std::uint64_t nodes = interleaved_nodes.load(std::memory_order_relaxed);
  if (nodes == 0) return;
  (bind_memory(address, bytes, nodes) == 0 ? interleaved : refused).fetch_add(1, std::memory_order_relaxed);
}

InterleaveCounts interleave_counts() { return {interleaved.load(), refused.load()}; }

}  // namespace hotrow::store
