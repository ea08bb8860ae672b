// The files of the border: each binds one part of the store.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <string>

namespace hotrow::store {
class RamTier;
}

namespace hotrow::bind {

namespace nb = nanobind;
using namespace nb::literals;

void bind_table_spec(nb::module_& m);
void bind_batch(nb::module_& m);
void bind_table(nb::module_& m);
void bind_table_segment(nb::class_<store::RamTier>& table);
void bind_cut(nb::class_<store::RamTier>& tier);
void bind_cache(nb::class_<store::RamTier>& tier);
void bind_batch_kernels(nb::module_& m);
void bind_shards(nb::module_& m);
void bind_limits(nb::module_& m);
void bind_placement(nb::module_& m);
void bind_segment(nb::module_& m);
void bind_stream_copy(nb::module_& m);
void bind_disk(nb::module_& m);

}  // namespace hotrow::bind
