// hotrow._native.DiskTier: the rows of a table on disk. hotrow.store.ssd is its Python face.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <memory>
#include <shared_mutex>
#include <stdexcept>
#include <tuple>

#include "bind/arrays.h"
#include "store/disk_tier.h"
#include "store/unique.h"

namespace hotrow::bind {
namespace {

using store::DiskColumns;
using store::DiskTier;
using Keys = HostArray<const std::uint64_t, 1>;
using OutKeys = HostArray<std::uint64_t, 1>;
using Floats = HostArray<float, 2>;
using ConstFloats = HostArray<const float, 2>;
using Flags = HostArray<bool, 1>;
using FieldColumns = std::vector<HostArray<std::uint32_t, 1>>;
using ConstFieldColumns = std::vector<HostArray<const std::uint32_t, 1>>;

// A tier that may be closed while another thread is in a call: closing waits for it, and calls after it are refused.
struct DiskHandle {
  explicit DiskHandle(store::DiskSpec spec) : process(getpid()), tier(new DiskTier(std::move(spec))) {}
  DiskHandle(const DiskHandle&) = delete;
  DiskHandle& operator=(const DiskHandle&) = delete;
  ~DiskHandle() {
    if (getpid() != process) tier.release();  // NOLINT(bugprone-unused-return-value): threads and file are the parent's
  }

  int process;
  std::unique_ptr<DiskTier> tier;
  mutable std::shared_mutex lifetime;
  bool closed = false;
};

using Shared = std::shared_ptr<DiskHandle>;

// One call of an open tier, without the GIL.
class Call {
 public:
  explicit Call(const DiskHandle& handle) : held_(handle.lifetime) {
    if (handle.closed) throw std::logic_error("the disk tier is closed: make a new one");
  }

 private:
  nb::gil_scoped_release unlocked_;
  std::shared_lock<std::shared_mutex> held_;
};

struct SnapshotHandle {
  Shared handle;
  std::unique_ptr<DiskTier::Snapshot> rows;
};

struct CutHandle {
  Shared handle;
  DiskTier::Cut cut;
  bool ended = false;

  void end(bool saved) {
    if (std::exchange(ended, true)) return;
    handle->tier->end_cut(cut, saved);
  }
  CutHandle(Shared owner, DiskTier::Cut begun) : handle(std::move(owner)), cut(std::move(begun)) {}
  CutHandle(const CutHandle&) = delete;
  CutHandle& operator=(const CutHandle&) = delete;
  ~CutHandle() { end(false); }
};

Shared make_tier(const std::string& path, const store::Identity& identity, std::size_t dim, std::size_t state_dim,
                 int type, std::size_t fields, std::uint64_t capacity_bytes, int threads, bool direct, int io,
                 int depth, std::size_t write_behind, const std::string& staging,
                 std::optional<std::size_t> index_cache) {
  check_threads(threads);
  demand(type >= 0 && type <= 2, "type must be from 0 to 2");
  demand(io >= 0 && io <= 2, "io must be from 0 to 2");
  demand(depth >= 1 && depth <= 4096, "depth must be from 1 to 4096");
  const nb::gil_scoped_release unlocked;
  return std::make_shared<DiskHandle>(store::DiskSpec{
      path, identity, store::SlotLayout(dim, static_cast<store::RowType>(type), state_dim, fields), capacity_bytes,
      direct, static_cast<store::IoChoice>(io), depth, write_behind, staging, threads, index_cache});
}

template <typename KeyColumn, typename FloatColumn, typename Columns>
DiskColumns columns_of(const DiskTier& tier, const KeyColumn& keys, const FloatColumn& values, const FloatColumn& state,
                       const Columns& fields) {
  const std::size_t rows = keys.shape(0);
  check_shape("rows: values", values, {rows, tier.layout().dim()});
  check_shape("rows: state", state, {rows, tier.layout().state_dim()});
  demand(fields.size() == tier.layout().fields(), "rows: give one column for each field");
  DiskColumns columns;
  // Rows that are written are only read here.
  columns.keys = const_cast<std::uint64_t*>(keys.data());
  columns.values = const_cast<float*>(values.data());
  columns.state = const_cast<float*>(state.data());
  for (const auto& field : fields) {
    check_shape("rows: a field", field, {rows});
    columns.fields.push_back(const_cast<std::uint32_t*>(field.data()));
  }
  return columns;
}

// How many keys are there more than once.
std::size_t repeated(std::span<const std::uint64_t> keys) {
  thread_local store::Scratch<std::uint32_t> slots, inverse, counts;
  thread_local store::Scratch<std::uint64_t> unique;
  return keys.size() - store::unique_serial(keys, unique.take(keys.size()), inverse.take(keys.size()),
                                            counts.take(keys.size()), slots);
}

void check_distinct(std::span<const std::uint64_t> keys) {
  if (const std::size_t twice = repeated(keys); twice > 0)
    throw std::invalid_argument("keys: " + std::to_string(twice) + " of them occur twice, give each key once");
}

void contains(const DiskHandle& handle, const Keys& keys, bool shadowed, const Flags& out) {
  check_shape("contains: out", out, {keys.shape(0)});
  const Call call(handle);
  check_distinct(span_of(keys));
  handle.tier->contains(span_of(keys), shadowed, out.data());
}

std::size_t read(const DiskHandle& handle, const Keys& keys, bool shadowed, const Flags& found, const OutKeys& out_keys,
                 const Floats& values, const Floats& state, const FieldColumns& fields) {
  check_shape("read: found", found, {keys.shape(0)});
  check_shape("read: keys", out_keys, {keys.shape(0)});
  const DiskColumns columns = columns_of(*handle.tier, out_keys, values, state, fields);
  const Call call(handle);
  check_distinct(span_of(keys));
  return handle.tier->read(span_of(keys), shadowed, found.data(), columns);
}

void write(const DiskHandle& handle, const Keys& keys, const ConstFloats& values, const ConstFloats& state,
           const ConstFieldColumns& fields) {
  const DiskColumns columns = columns_of(*handle.tier, keys, values, state, fields);
  const Call call(handle);
  check_distinct(span_of(keys));
  handle.tier->write(columns, keys.shape(0));
}

void shadow(const DiskHandle& handle, const Keys& keys) {
  const Call call(handle);
  check_distinct(span_of(keys));
  handle.tier->shadow(span_of(keys));
}

std::size_t erase(const DiskHandle& handle, const Keys& keys) {
  const Call call(handle);
  check_distinct(span_of(keys));
  return handle.tier->erase(span_of(keys));
}

SnapshotHandle* snapshot(const Shared& handle) {
  const Call call(*handle);
  return new SnapshotHandle{handle, handle->tier->snapshot()};
}

CutHandle* begin_cut(const Shared& handle, const std::optional<std::uint64_t>& since) {
  const Call call(*handle);
  return new CutHandle(handle, handle->tier->begin_cut(since));
}

std::size_t next_rows(const DiskHandle& handle, DiskTier::Snapshot* rows, const OutKeys& keys, const Floats& values,
                      const Floats& state, const FieldColumns& fields) {
  const DiskColumns columns = columns_of(*handle.tier, keys, values, state, fields);
  const Call call(handle);
  return rows == nullptr ? 0 : rows->next(keys.shape(0), columns);
}

void close(DiskHandle& handle, bool remove) {
  if (getpid() != handle.process) return;
  const nb::gil_scoped_release unlocked;
  const std::unique_lock held(handle.lifetime);
  if (std::exchange(handle.closed, true)) return;
  handle.tier->close(remove);
}

auto opened(const DiskHandle& handle) {
  using Found = std::tuple<std::size_t, std::size_t, std::size_t, double>;
  const auto& found = handle.tier->opened();
  return found ? std::optional<Found>({found->rows, found->torn, found->superseded, found->seconds}) : std::nullopt;
}

nb::typed<nb::dict, std::string, nb::any> stats(const DiskHandle& handle) {
  store::DiskStats found;
  {
    const Call call(handle);
    found = handle.tier->stats();
  }
  nb::dict out;
  const auto put = [&](const char* name, auto value) { out[name] = value; };
  put("rows", found.rows);
  put("shadowed", found.shadowed);
  put("tombstones", found.tombstones);
  put("capacity_rows", found.capacity_rows);
  put("staged_rows", found.staged_rows);
  put("extents", found.extents);
  put("free_extents", found.free_extents);
  put("slots_per_extent", found.slots_per_extent);
  put("slot_bytes", found.slot_bytes);
  put("extent_bytes", found.extent_bytes);
  put("index_bytes", found.index_bytes);
  put("index_filter_bytes", found.index_filter_bytes);
  put("index_cache_bytes", found.index_cache_bytes);
  put("index_file_bytes", found.index_file_bytes);
  put("index_reads", found.index_reads);
  put("index_writes", found.index_writes);
  put("bitmap_bytes", found.bitmap_bytes);
  put("staging_bytes", found.staging_bytes);
  put("file_bytes", found.file_bytes);
  put("reads", found.reads);
  put("read_bytes", found.read_bytes);
  put("writes", found.writes);
  put("write_bytes", found.write_bytes);
  put("syncs", found.syncs);
  put("rows_read", found.rows_read);
  put("rows_read_buffered", found.rows_read_buffered);
  put("rows_written", found.rows_written);
  put("rows_erased", found.rows_erased);
  put("compacted_extents", found.compacted_extents);
  put("compacted_rows", found.compacted_rows);
  put("reused_extents", found.reused_extents);
  put("damaged", found.damaged);
  put("read_wait_s", found.read_wait_s);
  put("write_stall_s", found.write_stall_s);
  put("direct", found.direct);
  put("io", found.io);
  return out;
}

nb::object error_type(const char* name) {
  const nb::object errors = nb::steal(PyImport_GetModule(nb::str("hotrow.errors").ptr()));
  return errors.is_valid() ? nb::object(errors.attr(name)) : nb::borrow(PyExc_RuntimeError);
}

void translate(const std::exception_ptr& thrown, void* /*payload*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const store::DiskFullError& error) {
    PyErr_SetString(error_type("DiskFullError").ptr(), error.what());
  } catch (const store::DiskLockedError& error) {
    PyErr_SetString(error_type("LockedFileError").ptr(), error.what());
  } catch (const store::DiskError& error) {
    PyErr_SetString(error_type("DiskError").ptr(), error.what());
  }
}

}  // namespace

void bind_disk(nb::module_& m) {
  nb::register_exception_translator(&translate);
  nb::class_<SnapshotHandle>(m, "DiskSnapshot")
      .def_prop_ro("rows", [](const SnapshotHandle& each) { return each.rows->rows(); })
      .def(
          "next",
          [](const SnapshotHandle& each, const OutKeys& keys, const Floats& values, const Floats& state,
             const FieldColumns& fields) {
            return next_rows(*each.handle, each.rows.get(), keys, values, state, fields);
          },
          "keys"_a.noconvert(), "values"_a.noconvert(), "state"_a.noconvert(), "fields"_a);
  nb::class_<CutHandle>(m, "DiskCut")
      .def_prop_ro("number", [](const CutHandle& each) { return each.cut.number; })
      .def_prop_ro("rows", [](const CutHandle& each) { return each.ended ? 0 : each.cut.rows->rows(); })
      .def("removed",
           [](const CutHandle& each) {
             return nb::bytes(each.cut.removed.data(), each.cut.removed.size() * sizeof(store::Key));
           })
      .def(
          "next",
          [](const CutHandle& each, const OutKeys& keys, const Floats& values, const Floats& state,
             const FieldColumns& fields) {
            return next_rows(*each.handle, each.cut.rows.get(), keys, values, state, fields);
          },
          "keys"_a.noconvert(), "values"_a.noconvert(), "state"_a.noconvert(), "fields"_a)
      .def("end", &CutHandle::end, "saved"_a, nb::call_guard<nb::gil_scoped_release>());
  nb::class_<DiskHandle>(m, "DiskTier")
      .def(nb::new_(&make_tier), "path"_a, "identity"_a, "dim"_a, "state_dim"_a, "type"_a, "fields"_a,
           "capacity_bytes"_a, "threads"_a, "direct"_a, "io"_a, "depth"_a, "write_behind"_a, "staging"_a,
           "index_cache"_a.none())
      .def_prop_ro("opened", &opened)
      .def("__len__",
           [](const DiskHandle& handle) {
             const Call call(handle);
             return handle.tier->size();
           })
      .def_prop_ro("unshadowed",
                   [](const DiskHandle& handle) {
                     const Call call(handle);
                     return handle.tier->unshadowed();
                   })
      .def_prop_ro("room",
                   [](const DiskHandle& handle) {
                     const Call call(handle);
                     return handle.tier->room_rows();
                   })
      .def("contains", &contains, "keys"_a.noconvert(), "shadowed"_a, "out"_a.noconvert())
      .def("read", &read, "keys"_a.noconvert(), "shadowed"_a, "found"_a.noconvert(), "out_keys"_a.noconvert(),
           "values"_a.noconvert(), "state"_a.noconvert(), "fields"_a)
      .def("write", &write, "keys"_a.noconvert(), "values"_a.noconvert(), "state"_a.noconvert(), "fields"_a)
      .def("shadow", &shadow, "keys"_a.noconvert())
      .def("erase", &erase, "keys"_a.noconvert())
      .def("flush",
           [](const DiskHandle& handle) {
             const Call call(handle);
             handle.tier->flush();
           })
      .def("compact",
           [](const DiskHandle& handle) {
             const Call call(handle);
             handle.tier->compact();
           })
      .def("verify",
           [](const DiskHandle& handle) {
             const Call call(handle);
             return handle.tier->verify();
           })
      .def("snapshot", &snapshot)
      .def("begin_cut", &begin_cut, "since"_a.none())
      .def("stats", &stats)
      .def("close", &close, "remove"_a);
}

}  // namespace hotrow::bind
