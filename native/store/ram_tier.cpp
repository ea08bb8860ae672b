// Finding, creating and removing rows.
#include "store/ram_tier.h"

#include <cstring>

#include "store/ram_tier_visit.h"

namespace hotrow::store {

RamTier::RamTier(const TableSpec& spec)
    : spec_(spec),
      layout_(spec.dim, spec.optimizer.state_dim(spec.dim), spec.clock, spec.last_seen, spec.optimizer.swap_period != 0,
              spec.optimizer.rule == Rule::adam && spec.optimizer.correct_by_row),
      rule_(update_rule(spec.optimizer)),
      adam_steps_(spec.optimizer) {
  const std::size_t partitions = std::size_t{1} << spec.partitions_log2;
  for (std::size_t p = 0; p < partitions; ++p)
    partitions_.push_back(
        std::make_unique<Partition>(arena_, layout_.row_bytes(), static_cast<double>(p) / partitions));
}

RamTier::~RamTier() = default;

void RamTier::create(Partition& partition, Batch& batch, Visit& visit) const {
  const Key key = batch.keys()[visit.unique];
  const std::uint32_t fresh = partition.slab.take();
  std::byte* row = partition.slab.row(fresh);
  std::memset(row, 0, layout_.row_bytes());
  Layout::key(row) = key;
  row_kernels().first_values(spec_.first_values, key, layout_.value(row), layout_.dim());
  row_kernels().first_state(rule_, static_cast<float>(spec_.optimizer.initial), layout_.value(row), layout_.state(row),
                            layout_.dim());
  try {
    partition.index.insert(visit.hash, fresh);
  } catch (...) {
    partition.slab.give(fresh);
    throw;
  }
  Layout::version(row) = 1;
  ++created_;
  batch.slots()[visit.unique] = fresh;
  visit.row = row;
}

void RamTier::copy_out(const Visit& visit, float* rows) const {
  const std::size_t dim = layout_.dim();
  float* to = rows + visit.unique * dim;
  if (visit.row != nullptr)
    std::memcpy(to, layout_.value(visit.row), dim * sizeof(float));
  else
    std::fill_n(to, dim, std::numeric_limits<float>::quiet_NaN());
}

// One row per unique key -> one row per key of the batch.
void RamTier::expand(const Batch& batch, const float* rows, float* out, int threads) const {
  constexpr std::size_t kCacheBytes = 4 << 20;  // a larger output has left a core's caches before anyone reads it
  const bool past_caches = batch.size() * layout_.dim() * sizeof(float) > kCacheBytes;
  const std::size_t stretches = batch.size() < kSmallBatch ? 1 : static_cast<std::size_t>(threads) * 4;
  parallel_for(threads, stretches, [&](std::size_t i) {
    row_kernels().expand(out, rows, batch.inverse(), batch.size() * i / stretches, batch.size() * (i + 1) / stretches,
                         layout_.dim(), past_caches);
  });
}

std::size_t RamTier::find(Batch& batch, float* out, Per per, int threads) const {
  float* rows = out == nullptr || per == Per::unique ? out : unique_rows(batch, layout_.dim());
  const Applied seen = visit(batch, threads, {false, layout_.value_end()}, [&](auto&, Visit& visit, Applied& done) {
    done.absent += visit.row == nullptr;
    if (rows != nullptr) copy_out(visit, rows);
  });
  if (rows != out) expand(batch, rows, out, threads);
  return seen.absent;
}

void RamTier::find_or_init(Batch& batch, float* out, Per per, int threads) {
  float* rows = out == nullptr || per == Per::unique ? out : unique_rows(batch, layout_.dim());
  visit(batch, threads, {true, layout_.value_end()}, [&](Partition& partition, Visit& visit, Applied&) {
    if (visit.row == nullptr) create(partition, batch, visit);
    if (rows != nullptr) copy_out(visit, rows);
  });
  if (rows != out) expand(batch, rows, out, threads);
}

void RamTier::read(Batch& batch, Field field, std::uint32_t* out, int threads) const {
  std::vector<std::uint32_t> found(batch.unique());
  visit(batch, threads, {false, sizeof(Key)}, [&](auto&, Visit& visit, Applied&) {
    found[visit.unique] = visit.row == nullptr ? 0 : layout_.field(visit.row, field);
  });
  for (std::size_t i = 0; i < batch.size(); ++i) out[i] = found[batch.inverse()[i]];
}

std::size_t RamTier::touch(Batch& batch, std::uint64_t step, int threads) {
  const Applied seen = visit(batch, threads, {true, sizeof(Key)}, [&](auto&, Visit& visit, Applied& done) {
    if (visit.row == nullptr) return;
    ++done.rows;
    if (!layout_.has(kLastSeen)) return;
    std::uint32_t& seen_at = layout_.field(visit.row, kLastSeen);
    seen_at = std::max(seen_at, clamp32(step));
  });
  return seen.rows;
}

std::size_t RamTier::erase(Batch& batch, int threads) {
  const Applied gone = visit(batch, threads, {true, sizeof(Key)}, [&](auto& partition, Visit& visit, Applied& done) {
    if (visit.row == nullptr) return;
    std::uint32_t& slot = batch.slots()[visit.unique];
    partition.index.erase(hash_key(batch.keys()[visit.unique]), slot);
    partition.slab.give(slot);
    slot = kNoRow;
    ++done.rows;
  });
  erased_ += gone.rows;
  return gone.rows;
}

void RamTier::first_values(std::span<const Key> keys, float* out, int threads) const {
  constexpr std::size_t kRun = 1024;
  parallel_for(threads, (keys.size() + kRun - 1) / kRun, [&](std::size_t task) {
    const std::size_t end = std::min(keys.size(), (task + 1) * kRun);
    for (std::size_t i = task * kRun; i < end; ++i)
      row_kernels().first_values(spec_.first_values, keys[i], out + i * layout_.dim(), layout_.dim());
  });
}

}  // namespace hotrow::store
