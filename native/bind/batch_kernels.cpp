// The batch kernels of hotrow._native. The Python face (hotrow.store.kernels) has told a user's mistakes of type and
// layout before a call gets here; shapes and indices are checked below, before anything is written.
#include <nanobind/stl/optional.h>

#include <optional>

#include "bind/arrays.h"
#include "store/bags.h"
#include "store/codec.h"
#include "store/narrow.h"
#include "store/pool.h"
#include "store/strings.h"
#include "store/unique.h"

namespace hotrow::bind {
namespace {

using Keys = HostArray<const store::Key, 1>;
using KeysOut = HostArray<store::Key, 1>;
using Numbers = HostArray<const std::uint32_t, 1>;
using NumbersOut = HostArray<std::uint32_t, 1>;
using Offsets = HostArray<const std::int64_t, 1>;
using OffsetsOut = HostArray<std::int64_t, 1>;
using Floats = HostArray<const float, 1>;
using FloatsOut = HostArray<float, 1>;
using Rows = HostArray<const float, 2>;
using RowsOut = HostArray<float, 2>;
using Halves = HostArray<const store::Half, 2>;
using HalvesOut = HostArray<store::Half, 2>;
using Bytes = HostArray<const std::uint8_t, 1>;
using Streams = HostArray<const std::uint64_t, 1>;

constexpr std::size_t kPositionsMax = 0xfffffffe;  // positions and unique keys are numbered in 32 bits

void check_positions(const std::string& what, std::size_t count) {
  demand(count <= kPositionsMax,
         what + " holds " + std::to_string(count) + " ids: must be below 2^32 - 1 (split the batch)");
}

std::size_t unique(const Keys& keys, const KeysOut& unique_keys, const NumbersOut& inverse, const NumbersOut& counts,
                   int threads) {
  check_positions("unique: keys", keys.size());
  check_shape("unique: unique_keys", unique_keys, {keys.size()});
  check_shape("unique: inverse", inverse, {keys.size()});
  check_shape("unique: counts", counts, {keys.size()});
  check_threads(threads);
  const nb::gil_scoped_release unlocked;
  return store::unique(span_of(keys), unique_keys.data(), inverse.data(), counts.data(), threads);
}

// What the three pooling calls check alike. The ids themselves are walked later, without the GIL.
store::PooledIds pooled_ids(const std::string& who, const Numbers& inverse, const Offsets& offsets,
                            const std::optional<Floats>& weights, bool mean, std::size_t dim, int threads) {
  demand(dim > 0, who + ": rows have no columns: dim must be 1 or more");
  check_threads(threads);
  check_positions(who + ": inverse", inverse.size());
  check_positions(who + ": offsets", offsets.size());
  if (weights) check_shape(who + ": weights", *weights, {inverse.size()});
  demand(!weights || !mean, who + ": mode='mean' takes no weights: use mode='sum' or leave them out");
  demand(offsets.size() > 0, who + ": offsets is empty, expected one more than there are bags");
  return {span_of(inverse), span_of(offsets), weights ? weights->data() : nullptr};
}

void pool(const Rows& rows, const Numbers& inverse, const Offsets& offsets, const std::optional<Floats>& weights,
          bool mean, const RowsOut& out, int threads) {
  const std::size_t dim = rows.shape(1);
  const auto ids = pooled_ids("pool", inverse, offsets, weights, mean, dim, threads);
  check_shape("pool: out", out, {ids.bags(), dim});
  const nb::gil_scoped_release unlocked;
  const auto own = store::checked_ids("pool", ids, rows.shape(0));
  store::pool(rows.data(), dim, own, mean ? store::PoolMode::mean : store::PoolMode::sum, out.data(), threads);
}

void pool_backward(const Rows& grad_out, const Numbers& inverse, const Offsets& offsets,
                   const std::optional<Floats>& weights, bool mean, const RowsOut& out, int threads) {
  const std::size_t dim = grad_out.shape(1), rows = out.shape(0);
  const auto ids = pooled_ids("pool_backward", inverse, offsets, weights, mean, dim, threads);
  check_shape("pool_backward: grad_out", grad_out, {ids.bags(), dim});
  check_shape("pool_backward: out", out, {rows, dim});
  const nb::gil_scoped_release unlocked;
  const auto own = store::checked_ids("pool_backward", ids, rows);
  store::pool_backward(grad_out.data(), dim, own, mean ? store::PoolMode::mean : store::PoolMode::sum, rows, out.data(),
                       threads);
}

void pool_weight_gradient(const Rows& grad_out, const Rows& rows, const Numbers& inverse, const Offsets& offsets,
                          const FloatsOut& out, int threads) {
  const std::size_t dim = rows.shape(1);
  const auto ids = pooled_ids("pool_weight_gradient", inverse, offsets, {}, false, dim, threads);
  check_shape("pool_weight_gradient: grad_out", grad_out, {ids.bags(), dim});
  check_shape("pool_weight_gradient: out", out, {inverse.size()});
  const nb::gil_scoped_release unlocked;
  const auto own = store::checked_ids("pool_weight_gradient", ids, rows.shape(0));
  store::pool_weight_gradient(grad_out.data(), rows.data(), dim, own, out.data(), threads);
}

void encode_rows(const Rows& rows, const HalvesOut& half, const FloatsOut& scale, int threads) {
  const std::size_t count = rows.shape(0), dim = rows.shape(1);
  demand(dim > 0, "encode_rows: rows have no columns: dim must be 1 or more");
  check_shape("encode_rows: half", half, {count, dim});
  check_shape("encode_rows: scale", scale, {count});
  check_threads(threads);
  const nb::gil_scoped_release unlocked;
  store::encode_rows(rows.data(), count, dim, half.data(), scale.data(), threads);
}

void decode_rows(const Halves& half, const Floats& scale, const RowsOut& rows, int threads) {
  const std::size_t count = half.shape(0), dim = half.shape(1);
  demand(dim > 0, "decode_rows: half has no columns: dim must be 1 or more");
  check_shape("decode_rows: scale", scale, {count});
  check_shape("decode_rows: rows", rows, {count, dim});
  check_threads(threads);
  const nb::gil_scoped_release unlocked;
  store::decode_rows(half.data(), scale.data(), count, dim, rows.data(), threads);
}

void check_narrow(const std::string& who, int type, std::size_t dim) {
  demand(type == static_cast<int>(store::RowType::float16) || type == static_cast<int>(store::RowType::bfloat16),
         who + ": type=" + std::to_string(type) + ": must be 1 (float16) or 2 (bfloat16)");
  demand(dim > 0, who + ": rows have no columns: dim must be 1 or more");
}

std::size_t narrow(const Rows& values, int type, const Streams& streams, const HalvesOut& out) {
  const std::size_t count = values.shape(0), dim = values.shape(1);
  check_narrow("narrow", type, dim);
  check_shape("narrow: streams", streams, {count});
  check_shape("narrow: out", out, {count, dim});
  const nb::gil_scoped_release unlocked;
  const auto kernel = store::narrow_kernels().narrow[type];
  std::size_t saturated = 0;
  for (std::size_t row = 0; row < count; ++row)
    saturated += kernel(values.data() + row * dim, out.data() + row * dim, dim, streams.data()[row]);
  return saturated;
}

void widen(const Halves& values, int type, const RowsOut& out) {
  const std::size_t count = values.shape(0), dim = values.shape(1);
  check_narrow("widen", type, dim);
  check_shape("widen: out", out, {count, dim});
  const nb::gil_scoped_release unlocked;
  const auto kernel = store::narrow_kernels().widen[type];
  for (std::size_t row = 0; row < count; ++row) kernel(values.data() + row * dim, out.data() + row * dim, dim);
}

template <typename Sample>
std::size_t compress_ids(const Keys& keys, const Offsets& offsets, const KeysOut& unique_keys, const NumbersOut& counts,
                         const HostArray<Sample, 1>& samples, int threads) {
  constexpr std::size_t bags_max = static_cast<Sample>(-1);
  check_positions("compress_ids: keys", keys.size());
  demand(offsets.size() <= bags_max + 1, "compress_ids: " + std::to_string(offsets.size()) +
                                             " offsets: must be at most " + std::to_string(bags_max + 1));
  check_shape("compress_ids: unique_keys", unique_keys, {keys.size()});
  check_shape("compress_ids: counts", counts, {keys.size()});
  check_shape("compress_ids: samples", samples, {keys.size()});
  check_threads(threads);
  const nb::gil_scoped_release unlocked;
  return store::compress_ids(span_of(keys), span_of(offsets), unique_keys.data(), counts.data(), samples.data(),
                             threads);
}

template <typename Sample>
void expand_ids(const Keys& unique_keys, const Numbers& counts, const HostArray<const Sample, 1>& samples,
                const KeysOut& keys, const OffsetsOut& offsets) {
  check_shape("expand_ids: counts", counts, {unique_keys.size()});
  check_shape("expand_ids: keys", keys, {samples.size()});
  demand(offsets.size() > 0, "expand_ids: offsets is empty, expected one more than there are bags");
  const nb::gil_scoped_release unlocked;
  store::expand_ids(span_of(unique_keys), span_of(counts), span_of(samples), offsets.size() - 1, keys.data(),
                    offsets.data());
}

template <typename Offset>
store::StringColumn<Offset> string_column(const std::string& who, const Bytes& data,
                                          const HostArray<const Offset, 1>& offsets,
                                          const std::optional<Bytes>& validity, std::size_t first,
                                          std::size_t strings) {
  demand(strings < offsets.size() && first < offsets.size() - strings,
         who + ": offsets hold " + std::to_string(offsets.size()) + ", expected at least " + std::to_string(first) +
             " + " + std::to_string(strings) + " + 1");
  demand(!validity || validity->size() >= (first + strings + 7) / 8,
         who + ": validity is too short for " + std::to_string(first + strings) + " strings");
  return {span_of(data), span_of(offsets).subspan(first, strings + 1), validity ? validity->data() : nullptr, first};
}

template <typename Offset>
std::size_t hash_strings(const Bytes& data, const HostArray<const Offset, 1>& offsets,
                         const std::optional<Bytes>& validity, std::size_t first, const KeysOut& out,
                         std::uint64_t seed, std::uint64_t null, int threads) {
  const auto column = string_column("hash_strings", data, offsets, validity, first, out.size());
  check_threads(threads);
  const nb::gil_scoped_release unlocked;
  return store::hash_strings(column, seed, null, out.data(), threads);
}

template <typename Offset>
std::size_t string_ids(const Bytes& data, const HostArray<const Offset, 1>& offsets,
                       const std::optional<Bytes>& validity, std::size_t first, const KeysOut& out, std::uint64_t seed,
                       std::uint64_t null, int threads) {
  const auto column = string_column("string_ids", data, offsets, validity, first, out.size());
  check_threads(threads);
  const nb::gil_scoped_release unlocked;
  return store::string_ids(column, seed, null, out.data(), threads);
}

template <typename Sample>
void bind_ids(nb::module_& m) {
  m.def("compress_ids", &compress_ids<Sample>, "keys"_a.noconvert(), "offsets"_a.noconvert(),
        "unique_keys"_a.noconvert(), "counts"_a.noconvert(), "samples"_a.noconvert(), "threads"_a,
        "Each key once with the bags it occurs in; return the number of unique keys.");
  m.def("expand_ids", &expand_ids<Sample>, "unique_keys"_a.noconvert(), "counts"_a.noconvert(), "samples"_a.noconvert(),
        "keys"_a.noconvert(), "offsets"_a.noconvert(), "The bags that compress_ids was given.");
}

template <typename Offset>
void bind_strings(nb::module_& m) {
  m.def("hash_strings", &hash_strings<Offset>, "data"_a.noconvert(), "offsets"_a.noconvert(),
        "validity"_a.noconvert().none(), "first"_a, "out"_a.noconvert(), "seed"_a, "null"_a, "threads"_a,
        "Hash out.size strings of an Arrow column from `first` on; return how many are null.");
  m.def("string_ids", &string_ids<Offset>, "data"_a.noconvert(), "offsets"_a.noconvert(),
        "validity"_a.noconvert().none(), "first"_a, "out"_a.noconvert(), "seed"_a, "null"_a, "threads"_a,
        "The same, but a canonical whole number that fits 64 bits stands for itself.");
}

}  // namespace

void bind_batch_kernels(nb::module_& m) {
  m.def("unique", &unique, "keys"_a.noconvert(), "unique_keys"_a.noconvert(), "inverse"_a.noconvert(),
        "counts"_a.noconvert(), "threads"_a,
        "Deduplicate in order of first occurrence; return the number of unique keys.");
  m.def("pool", &pool, "rows"_a.noconvert(), "inverse"_a.noconvert(), "offsets"_a.noconvert(),
        "weights"_a.noconvert().none(), "mean"_a, "out"_a.noconvert(), "threads"_a, "Sum or mean of each bag's rows.");
  m.def("pool_backward", &pool_backward, "grad_out"_a.noconvert(), "inverse"_a.noconvert(), "offsets"_a.noconvert(),
        "weights"_a.noconvert().none(), "mean"_a, "out"_a.noconvert(), "threads"_a, "Gradient of pool by its rows.");
  m.def("pool_weight_gradient", &pool_weight_gradient, "grad_out"_a.noconvert(), "rows"_a.noconvert(),
        "inverse"_a.noconvert(), "offsets"_a.noconvert(), "out"_a.noconvert(), "threads"_a,
        "Gradient of pool by its weights.");
  m.def("encode_rows", &encode_rows, "rows"_a.noconvert(), "half"_a.noconvert(), "scale"_a.noconvert(), "threads"_a,
        "float32 rows to scaled fp16.");
  m.def("decode_rows", &decode_rows, "half"_a.noconvert(), "scale"_a.noconvert(), "rows"_a.noconvert(), "threads"_a,
        "Scaled fp16 to float32 rows.");
  m.def("narrow", &narrow, "values"_a.noconvert(), "type"_a, "streams"_a.noconvert(), "out"_a.noconvert(),
        "Round rows stochastically to float16 (1) or bfloat16 (2); return how many elements were too large.");
  m.def("widen", &widen, "values"_a.noconvert(), "type"_a, "out"_a.noconvert(),
        "float16 (1) or bfloat16 (2) rows to float32, exactly.");
  bind_ids<std::uint16_t>(m);
  bind_ids<std::uint32_t>(m);
  bind_strings<std::int32_t>(m);
  bind_strings<std::int64_t>(m);
}

}  // namespace hotrow::bind
