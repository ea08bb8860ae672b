// hotrow._native.Segment: row memory that outlives its process, for tests and for the listing. Tables use the same
// class from C++.
#include "store/segment.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <tuple>

#include "bind/arrays.h"

namespace hotrow::bind {
namespace {

using store::Identity;
using store::PushSeen;

// Arrays over a segment's memory share it, so the memory stays mapped as long as one of them lives.
struct SegmentHandle {
  std::shared_ptr<store::Segment> segment;
};

SegmentHandle* open_segment(const std::string& path, const Identity& identity, bool huge, bool keep) {
  const nb::gil_scoped_release unlocked;
  return new SegmentHandle{std::make_shared<store::Segment>(store::SegmentSpec{path, identity, huge, keep})};
}

nb::ndarray<nb::numpy, std::uint8_t> array_over(const SegmentHandle& handle, std::byte* memory, std::size_t bytes) {
  auto kept = std::make_unique<std::shared_ptr<store::Segment>>(handle.segment);
  const nb::capsule owner(kept.get(),
                          [](void* p) noexcept { delete static_cast<std::shared_ptr<store::Segment>*>(p); });
  kept.release();  // NOLINT(bugprone-unused-return-value): the capsule has it
  return {memory, {bytes}, owner};
}

auto allocate(const SegmentHandle& handle, std::uint32_t partition, std::uint32_t first_index, std::uint32_t rows,
              std::size_t bytes) {
  std::byte* memory = nullptr;
  {
    const nb::gil_scoped_release unlocked;
    memory = handle.segment->allocate({partition, first_index, rows}, bytes);
  }
  return array_over(handle, memory, bytes);
}

auto piece(const SegmentHandle& handle, std::size_t number) {
  const auto pieces = handle.segment->pieces();
  if (number >= pieces.size()) throw nb::index_error("the segment was attached with fewer pieces");
  return array_over(handle, pieces[number].memory, pieces[number].bytes);
}

auto pieces(const SegmentHandle& handle) {
  std::vector<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::size_t>> found;
  for (const store::Piece& piece : handle.segment->pieces())
    found.emplace_back(piece.tag.partition, piece.tag.first_index, piece.tag.rows, piece.bytes);
  return found;
}

auto inspect(const std::string& path) {
  store::SegmentReport report;
  {
    const nb::gil_scoped_release unlocked;
    report = store::inspect_segment(path);
  }
  return std::tuple(report.bytes, report.identity, report.in_use, report.owner, report.kept, report.fault);
}

// hotrow.errors.SegmentError; where the package is not loaded, as in tests of this module alone, a RuntimeError.
void translate(const std::exception_ptr& thrown, void* /*payload*/) {
  try {
    std::rethrow_exception(thrown);
  } catch (const store::SegmentError& error) {
    const nb::object errors = nb::steal(PyImport_GetModule(nb::str("hotrow.errors").ptr()));
    const nb::object type =
        errors.is_valid() ? nb::object(errors.attr("SegmentError")) : nb::borrow(PyExc_RuntimeError);
    PyErr_SetString(type.ptr(), error.what());
  }
}

}  // namespace

void bind_segment(nb::module_& m) {
  nb::register_exception_translator(&translate);
  nb::enum_<PushSeen>(m, "PushSeen")
      .value("fresh", PushSeen::fresh)
      .value("done", PushSeen::done)
      .value("partly", PushSeen::partly)
      .value("forgotten", PushSeen::forgotten)
      .value("discarded", PushSeen::discarded);
  nb::class_<SegmentHandle>(m, "Segment")
      .def(nb::new_(&open_segment), "path"_a, "identity"_a, "huge"_a, "keep"_a)
      .def_prop_ro("attached", [](const SegmentHandle& handle) { return handle.segment->attached(); })
      .def_prop_ro("bytes", [](const SegmentHandle& handle) { return handle.segment->bytes(); })
      .def("pieces", &pieces)
      .def("piece", &piece, "number"_a)
      .def("allocate", &allocate, "partition"_a, "first_index"_a, "rows"_a, "bytes"_a)
      .def(
          "push_begin", [](const SegmentHandle& h, std::uint64_t grant) { return h.segment->pushes().begin(grant); },
          "grant"_a)
      .def(
          "push_finish", [](const SegmentHandle& h, std::uint64_t grant) { h.segment->pushes().finish(grant); },
          "grant"_a)
      .def("push_partly", [](const SegmentHandle& handle) { return handle.segment->pushes().partly(); })
      .def("close", [](const SegmentHandle& handle) { handle.segment->close(); })
      .def("leave", [](const SegmentHandle& handle) { handle.segment->leave(); });
  m.def("inspect_segment", &inspect, "path"_a);
}

}  // namespace hotrow::bind
