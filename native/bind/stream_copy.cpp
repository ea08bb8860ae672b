// The copy of rings of shared memory (hotrow.store.copies).
#include "store/stream_copy.h"

#include "bind/arrays.h"

namespace hotrow::bind {
namespace {

using Bytes = HostArray<const std::uint8_t, 1>;
using BytesOut = HostArray<std::uint8_t, 1>;

void stream_copy(const Bytes& data, const BytesOut& out) {
  check_shape("stream_copy: out", out, {data.size()});
  const bool apart = out.data() + out.size() <= data.data() || data.data() + data.size() <= out.data();
  demand(data.size() == 0 || apart, "stream_copy: out shares memory with data: copy between separate arrays");
  const nb::gil_scoped_release unlocked;
  store::stream_copy(reinterpret_cast<std::byte*>(out.data()), reinterpret_cast<const std::byte*>(data.data()),
                     data.size());
}

}  // namespace

void bind_stream_copy(nb::module_& m) {
  m.def("stream_copy", &stream_copy, "data"_a.noconvert(), "out"_a.noconvert(), "Copy bytes past the caches.");
}

}  // namespace hotrow::bind
