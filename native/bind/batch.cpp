// hotrow._native.Batch: the keys of a batch, folded and planned.
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "bind/plans.h"
#include "store/ram_tier.h"

namespace hotrow::bind {
namespace {

using store::Batch;

template <typename T, int dims>
using Array = HostArray<T, dims>;

void batch_keys(const Batch& batch, const Array<std::uint64_t, 1>& out) {
  demand(out.shape(0) == batch.unique(), "keys: out must hold one number per unique key");
  std::copy_n(batch.keys(), batch.unique(), out.data());
}

void batch_inverse(const Batch& batch, const Array<std::uint32_t, 1>& out) {
  demand(out.shape(0) == batch.size(), "inverse: out must hold one number per key");
  std::copy_n(batch.inverse(), batch.size(), out.data());
}

void batch_overlap(const Batch& batch, const std::vector<const Batch*>& others, const Array<bool, 1>& out,
                   int threads) {
  check_threads(threads);
  demand(out.shape(0) == batch.unique(), "overlap: out must hold one flag per unique key");
  check_plans("overlap: others", others);
  const nb::gil_scoped_release unlocked;
  batch.overlap(others, out.data(), threads);
}

void batch_shared(const Batch& batch, const Batch& other, const Array<bool, 1>& mine, const Array<bool, 1>& theirs,
                  int threads) {
  check_threads(threads);
  demand(mine.shape(0) == batch.unique(), "shared: mine must hold one flag per unique key");
  demand(theirs.shape(0) == other.unique(), "shared: theirs must hold one flag per unique key of the other");
  const Batch* const others[] = {&other};
  const nb::gil_scoped_release unlocked;
  batch.overlap(others, mine.data(), threads, theirs.data());
}

void batch_absent(const Batch& batch, const Array<bool, 1>& out) {
  demand(out.shape(0) == batch.size(), "absent_mask: out must hold one flag per key");
  demand(batch.looked_up, "absent_mask: the batch has not been looked up yet");
  for (std::size_t i = 0; i < batch.size(); ++i)
    out.data()[i] = batch.slots()[batch.inverse()[i]] >= store::kTurnedAway;
}

}  // namespace

void bind_batch(nb::module_& m) {
  nb::class_<Batch>(m, "Batch")
      .def("__len__", &Batch::size)
      .def_prop_ro("unique", &Batch::unique)
      .def_prop_ro("partitions", &Batch::partitions)
      .def_ro("looked_up", &Batch::looked_up)
      .def_ro("without_room", &Batch::without_room)
      .def_prop_ro("counted", &Batch::counted)
      .def("keys", &batch_keys, "out"_a.noconvert())
      .def("inverse", &batch_inverse, "out"_a.noconvert())
      .def("overlap", &batch_overlap, "others"_a, "out"_a.noconvert(), "threads"_a)
      .def("shared", &batch_shared, "other"_a, "mine"_a.noconvert(), "theirs"_a.noconvert(), "threads"_a)
      .def("absent_mask", &batch_absent, "out"_a.noconvert());
}

}  // namespace hotrow::bind
