// Finding, creating and removing rows.
#include "store/ram_tier.h"

#include <cstring>

#include "store/ram_tier_visit.h"

namespace hotrow::store {
namespace {

constexpr std::uintptr_t kLine = 64;
constexpr std::size_t kPrefetchBytesMax = 1024;  // longer rows: the processor's own prefetcher follows

void prefetch(const std::byte* from, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(from);
  const std::uintptr_t end = begin + std::min(bytes, kPrefetchBytesMax);
  for (std::uintptr_t line = begin & ~(kLine - 1); line < end; line += kLine)
    __builtin_prefetch(reinterpret_cast<const void*>(line));
}

}  // namespace

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

void RamTier::ask_index(const Partition& partition, const Batch& batch, Visit& block) const {
  for (std::uint32_t i = 0; i < block.count; ++i) {
    block.hashes[i] = hash_key(batch.keys()[block.first + i]);
    block.homes[i] = partition.index.home(block.hashes[i]);
    __builtin_prefetch(block.homes[i]);
  }
}

// Guesses each key's row and asks for its memory: from the slot an earlier lookup left, or by the tag in the index.
void RamTier::ask_rows(const Partition& partition, Batch& batch, Visit& block, const Access& access) const {
  std::uint32_t* slots = batch.slots() + block.first;
  const std::uint32_t end = partition.slab.end();
  for (std::uint32_t i = 0; i < block.count; ++i) {
    if (!batch.looked_up) slots[i] = Index::first_match(*block.homes[i], block.hashes[i]);
    block.rows[i] = slots[i] < end ? partition.slab.row(slots[i]) : nullptr;
    if (block.rows[i] != nullptr) prefetch(block.rows[i], access.bytes);
  }
}

// The row's own key decides; a guess that was wrong, or has become so, is looked up in full.
void RamTier::settle(const Partition& partition, Batch& batch, Visit& block) const {
  const Key* keys = batch.keys() + block.first;
  std::uint32_t* slots = batch.slots() + block.first;
  for (std::uint32_t i = 0; i < block.count; ++i) {
    const std::byte* row = block.rows[i];
    if (row != nullptr && Layout::key(row) == keys[i] && Layout::live(row)) continue;
    block.hashes[i] = hash_key(keys[i]);
    slots[i] = partition.index.find(block.hashes[i], keys[i]);
    block.rows[i] = slots[i] == kNoRow ? nullptr : partition.slab.row(slots[i]);
  }
}

std::byte* RamTier::create(Partition& partition, Key key, std::uint64_t hash, std::uint32_t& slot) const {
  const std::uint32_t fresh = partition.slab.take();
  std::byte* row = partition.slab.row(fresh);
  std::memset(row, 0, layout_.row_bytes());
  Layout::key(row) = key;
  row_kernels().first_values(spec_.first_values, key, layout_.value(row), layout_.dim());
  row_kernels().first_state(rule_, static_cast<float>(spec_.optimizer.initial), layout_.value(row), layout_.state(row),
                            layout_.dim());
  try {
    partition.index.insert(hash, fresh);
  } catch (...) {
    partition.slab.give(fresh);
    throw;
  }
  Layout::version(row) = 1;
  slot = fresh;
  return row;
}

void RamTier::copy_out(const Visit& block, float* rows) const {
  const std::size_t dim = layout_.dim();
  for (std::uint32_t i = 0; i < block.count; ++i) {
    float* to = rows + (block.first + i) * dim;
    if (block.rows[i] != nullptr)
      std::memcpy(to, layout_.value(block.rows[i]), dim * sizeof(float));
    else
      std::fill_n(to, dim, std::numeric_limits<float>::quiet_NaN());
  }
}

// One row per unique key -> one row per key of the batch.
void RamTier::expand(const Batch& batch, const float* rows, float* out, int threads) const {
  const std::size_t stretches = batch.size() < kSmallBatch ? 1 : static_cast<std::size_t>(threads) * 4;
  parallel_for(threads, stretches, [&](std::size_t i) {
    row_kernels().expand(out, rows, batch.inverse(), batch.size() * i / stretches, batch.size() * (i + 1) / stretches,
                         layout_.dim());
  });
}

std::size_t RamTier::find(Batch& batch, float* out, Per per, int threads) const {
  std::atomic<std::size_t> absent{0};
  float* rows = out == nullptr || per == Per::unique ? out : batch.rows(layout_.dim());
  visit(batch, threads, {false, layout_.value_end()}, [&](const Partition&, Visit& block) {
    const auto missing = std::count(block.rows, block.rows + block.count, nullptr);
    if (missing != 0) absent += static_cast<std::size_t>(missing);
    if (rows != nullptr) copy_out(block, rows);
  });
  if (rows != out) expand(batch, rows, out, threads);
  return absent;
}

std::size_t RamTier::find_or_init(Batch& batch, float* out, Per per, int threads) {
  std::atomic<std::size_t> created{0};
  float* rows = out == nullptr || per == Per::unique ? out : batch.rows(layout_.dim());
  visit(batch, threads, {true, layout_.value_end()}, [&](Partition& partition, Visit& block) {
    std::size_t fresh = 0;
    for (std::uint32_t i = 0; i < block.count; ++i) {
      if (block.rows[i] != nullptr) continue;
      std::uint32_t& slot = batch.slots()[block.first + i];
      block.rows[i] = create(partition, batch.keys()[block.first + i], block.hashes[i], slot);
      ++fresh;
    }
    if (fresh != 0) created += fresh;
    if (rows != nullptr) copy_out(block, rows);
  });
  if (rows != out) expand(batch, rows, out, threads);
  created_ += created;
  return created;
}

void RamTier::read(Batch& batch, Field field, std::uint32_t* out, int threads) const {
  std::vector<std::uint32_t> found(batch.unique());
  visit(batch, threads, {false, sizeof(Key)}, [&](const Partition&, Visit& block) {
    for (std::uint32_t i = 0; i < block.count; ++i)
      found[block.first + i] = block.rows[i] == nullptr ? 0 : layout_.field(block.rows[i], field);
  });
  for (std::size_t i = 0; i < batch.size(); ++i) out[i] = found[batch.inverse()[i]];
}

std::size_t RamTier::touch(Batch& batch, std::uint64_t step, int threads) {
  std::atomic<std::size_t> present{0};
  visit(batch, threads, {true, sizeof(Key)}, [&](Partition&, Visit& block) {
    for (std::uint32_t i = 0; i < block.count; ++i) {
      if (block.rows[i] == nullptr) continue;
      ++present;
      if (!layout_.has(kLastSeen)) continue;
      std::uint32_t& seen = layout_.field(block.rows[i], kLastSeen);
      seen = std::max(seen, clamp32(step));
    }
  });
  return present;
}

std::size_t RamTier::erase(Batch& batch, int threads) {
  std::atomic<std::size_t> erased{0};
  visit(batch, threads, {true, sizeof(Key)}, [&](Partition& partition, Visit& block) {
    for (std::uint32_t i = 0; i < block.count; ++i) {
      std::uint32_t& slot = batch.slots()[block.first + i];
      if (block.rows[i] == nullptr) continue;
      partition.index.erase(hash_key(batch.keys()[block.first + i]), slot);
      partition.slab.give(slot);
      slot = kNoRow;
      ++erased;
    }
  });
  erased_ += erased;
  return erased;
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
