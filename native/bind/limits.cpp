// The machine's limits, for benchmarks: seconds for random row reads and for straight copies, timed in native code.
#include "store/limits.h"

#include <algorithm>
#include <span>
#include <vector>

#include "bind/arrays.h"

namespace hotrow::bind {
namespace {

using RowNumbers = HostArray<const std::int64_t, 1>;

constexpr std::size_t kBytesMax = std::size_t{1} << 46;  // more than any machine has

void make_row_field(store::RowField* self, std::size_t rows, std::size_t row_bytes, int threads) {
  check_threads(threads);
  demand(rows != 0, "rows=0: must be 1 or more");
  demand(row_bytes != 0 && row_bytes % 4 == 0,
         "row_bytes=" + std::to_string(row_bytes) + ": must be a multiple of 4, above 0");
  demand(rows <= kBytesMax / row_bytes, "rows=" + std::to_string(rows) + ", row_bytes=" + std::to_string(row_bytes) +
                                            ": together they must be at most 2^46 bytes");
  nb::gil_scoped_release unlocked;
  new (self) store::RowField(rows, row_bytes, threads);
}

double read_seconds(const store::RowField& field, const RowNumbers& rows, int threads) {
  check_threads(threads);
  const std::vector<std::int64_t> wanted(rows.data(), rows.data() + rows.size());  // what is checked is what is read
  const auto end = static_cast<std::int64_t>(field.rows());
  const auto bad = std::ranges::find_if(wanted, [end](std::int64_t row) { return row < 0 || row >= end; });
  if (bad != wanted.end())
    throw nb::value_error(("row " + std::to_string(*bad) + ": must be 0 to " + std::to_string(end - 1)).c_str());
  nb::gil_scoped_release unlocked;
  return field.read_seconds(wanted, threads);
}

void make_copy_field(store::CopyField* self, std::size_t bytes, int threads) {
  check_threads(threads);
  demand(bytes != 0 && bytes <= kBytesMax, "bytes=" + std::to_string(bytes) + ": must be from 1 to 2^46");
  nb::gil_scoped_release unlocked;
  new (self) store::CopyField(bytes, threads);
}

double copy_seconds(store::CopyField& field, int threads) {
  check_threads(threads);
  nb::gil_scoped_release unlocked;
  return field.copy_seconds(threads);
}

}  // namespace

void bind_limits(nb::module_& m) {
  nb::class_<store::RowField>(m, "RowField", "Plain rows in huge pages, to be read at random.")
      .def("__init__", &make_row_field, "rows"_a, "row_bytes"_a, "threads"_a)
      .def_prop_ro("rows", &store::RowField::rows)
      .def_prop_ro("row_bytes", &store::RowField::row_bytes)
      .def("read_seconds", &read_seconds, "rows"_a.noconvert(), "threads"_a,
           "Read each of these int64 row numbers' rows in order; return the seconds.");
  nb::class_<store::CopyField>(m, "CopyField", "A straight run of memory and room for its copy.")
      .def("__init__", &make_copy_field, "bytes"_a, "threads"_a)
      .def_prop_ro("bytes", &store::CopyField::bytes)
      .def("copy_seconds", &copy_seconds, "threads"_a, "Copy all bytes once; return the seconds.");
}

}  // namespace hotrow::bind
