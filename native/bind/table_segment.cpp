// The segment of a table in shared memory: what a process takes over from the one before, and its log of pushes.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind/arrays.h"
#include "store/ram_tier.h"

namespace hotrow::bind {
namespace {

using store::RamTier;

store::Segment& segment_of(const RamTier& tier) {
  demand(tier.segment() != nullptr, "the table has no segment");
  return *tier.segment();
}

std::tuple<std::size_t, std::size_t> attach(RamTier& tier, int threads) {
  check_threads(threads);
  demand(segment_of(tier).attached(), "attach: the segment is new, there is nothing to take over");
  const nb::gil_scoped_release unlocked;
  const store::Attached found = tier.attach(threads);
  return {found.rows, found.dropped};
}

}  // namespace

void bind_table_segment(nb::class_<store::RamTier>& table) {
  table.def("attach", &attach, "threads"_a)
      .def_prop_ro("attached", [](const RamTier& tier) { return segment_of(tier).attached(); })
      .def("leave_segment", [](RamTier& tier) { segment_of(tier).leave(); })
      .def("close_segment", [](RamTier& tier) { segment_of(tier).close(); })
      .def(
          "push_begin", [](RamTier& tier, std::uint64_t grant) { return segment_of(tier).pushes().begin(grant); },
          "grant"_a)
      .def(
          "push_finish", [](RamTier& tier, std::uint64_t grant) { segment_of(tier).pushes().finish(grant); }, "grant"_a)
      .def(
          "push_discard", [](RamTier& tier, std::uint64_t grant) { return segment_of(tier).pushes().discard(grant); },
          "grant"_a)
      .def(
          "push_find", [](const RamTier& tier, std::uint64_t grant) { return segment_of(tier).pushes().find(grant); },
          "grant"_a)
      .def("push_partly", [](const RamTier& tier) { return segment_of(tier).pushes().partly(); })
      .def("push_newest", [](const RamTier& tier) { return segment_of(tier).pushes().newest(); });
}

}  // namespace hotrow::bind
