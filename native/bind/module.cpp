// The Python module hotrow._native: what the store offers, bound once and re-exported by Python under its real names.
#include <nanobind/nanobind.h>

#include "bind/bind.h"
#include "store/heap.h"
#include "store/isa.h"

NB_MODULE(_native, m) {
  // torch keeps the last autograd graph, and with it our objects, until after the interpreter has gone: no fault of
  // ours.
  nanobind::set_leak_warnings(false);
  m.doc() = "Native core of Hotrow. Private: use hotrow.store and hotrow.store.kernels.";
  m.def("isa", &hotrow::store::isa_name, "The instruction set in use: plain, avx2 or avx512.");
  m.def("keep_freed_memory", &hotrow::store::keep_freed_memory, nanobind::arg("bytes"),
        "Keep so much freed memory for the next allocations; False: the C library cannot.");
  hotrow::bind::bind_table_spec(m);
  hotrow::bind::bind_batch(m);
  hotrow::bind::bind_table(m);
  hotrow::bind::bind_batch_kernels(m);
  hotrow::bind::bind_shards(m);
  hotrow::bind::bind_limits(m);
  hotrow::bind::bind_placement(m);
  hotrow::bind::bind_segment(m);
  hotrow::bind::bind_stream_copy(m);
  hotrow::bind::bind_disk(m);
}
