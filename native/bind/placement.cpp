// Where threads run and memory lies (hotrow.topology): the kept threads of the store, and pages over NUMA nodes.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>
#include <sched.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bind/arrays.h"
#include "store/numa.h"
#include "store/parallel.h"

namespace hotrow::bind {
namespace {

int bind_pool(const std::vector<std::vector<int>>& sets) {
  for (const std::vector<int>& cpus : sets) {
    demand(!cpus.empty(), "bind_pool: a set without a processor: give one or more, or no set at all");
    for (const int cpu : cpus)
      demand(cpu >= 0 && cpu < CPU_SETSIZE,
             "bind_pool: processor " + std::to_string(cpu) + ": must be 0 to " + std::to_string(CPU_SETSIZE - 1));
  }
  nb::gil_scoped_release unlocked;
  return store::bind_kept_threads(sets);
}

int interleave_memory(const std::vector<int>& nodes) {
  std::uint64_t mask = 0;
  for (const int node : nodes) {
    demand(node >= 0 && node < store::kNodesMax, "interleave_memory: node " + std::to_string(node) + ": must be 0 to " +
                                                     std::to_string(store::kNodesMax - 1));
    mask |= std::uint64_t{1} << node;
  }
  return store::set_interleave(mask);
}

std::pair<std::size_t, std::size_t> interleave_counts() {
  const store::InterleaveCounts counts = store::interleave_counts();
  return {counts.blocks, counts.refused};
}

}  // namespace

void bind_placement(nb::module_& m) {
  m.def("bind_pool", &bind_pool, "sets"_a,
        "Bind the kept threads of the store to these sets of processors in turn; return 0 or an errno.");
  m.def("interleave_memory", &interleave_memory, "nodes"_a,
        "Interleave pages of tables that grow from now on over NUMA nodes, none: off; return 0 or an errno.");
  m.def("interleave_counts", &interleave_counts, "Blocks of memory that are interleaved, and that the system refused.");
}

}  // namespace hotrow::bind
