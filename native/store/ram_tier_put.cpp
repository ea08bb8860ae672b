// Whole rows that are put: by a caller, or the rows of a checkpoint in parts.
#include <algorithm>
#include <cstring>
#include <optional>

#include "store/ram_tier_visit.h"

namespace hotrow::store {
namespace {

constexpr std::size_t kInsertAhead = 16;  // keys between the prefetch of an index line and its use

}  // namespace

// A part on its way into the table: `places` leads from a unique key to its row in the columns.
struct RamTier::PutPart {
  PutPart(Batch& planned, const Columns& of) : batch(planned), columns(of), places(planned.size()) {
    if (batch.unique() != batch.size())
      throw std::invalid_argument("keys: " + std::to_string(batch.size() - batch.unique()) +
                                  " of them occur twice, give each row once");
    for (std::size_t i = 0; i < batch.size(); ++i) places[batch.inverse()[i]] = static_cast<std::uint32_t>(i);
  }

  bool has(std::size_t partition) const { return batch.unique_begin(partition) != batch.unique_begin(partition + 1); }

  Batch& batch;
  const Columns& columns;
  std::vector<std::uint32_t> places;
};

std::size_t RamTier::put(Batch& batch, const Columns& columns, int threads, std::span<const Batch* const> pinned) {
  check_plan(batch);
  if (counts_occurrences_ && !batch.counted())
    throw std::invalid_argument("the batch was planned for a table that does not count how often keys come");
  PutPart part(batch, columns);
  return put_parts({&part, 1}, threads, pinned);
}

std::size_t RamTier::put(std::span<const RowsPart> rows, int threads) {
  std::vector<std::optional<Batch>> batches(rows.size());
  std::vector<std::optional<PutPart>> planned(rows.size());
  parallel_for(threads, rows.size(), [&](std::size_t i) {
    batches[i].emplace(batch({rows[i].columns.keys, rows[i].rows}, 1));
    planned[i].emplace(*batches[i], rows[i].columns);
  });
  std::vector<PutPart> parts;
  for (std::optional<PutPart>& part : planned) parts.push_back(std::move(*part));
  // Where rows expire, a part moves the clock by which the rows of the parts before it are judged.
  const bool one_by_one = spec_.life.expiry != 0 && (spec_.life.capacity_rows != 0 || size() != 0);
  if (!one_by_one) return put_parts(parts, threads, {});
  std::size_t turned_away = 0;
  for (PutPart& part : parts) turned_away += put_parts({&part, 1}, threads, {});
  return turned_away;
}

// Rows that come back into an empty table bring its clock and its SWAP period with them, in as many calls as it takes.
// Otherwise the clock stands, and nobody can have been seen later than now.
void RamTier::take_clock(const PutPart& part, bool empty) {
  const std::size_t rows = part.batch.size();
  if (rows == 0) return;
  const std::uint32_t* seen = part.columns.fields[kLastSeen];
  if (seen != nullptr && empty) {
    now_ = 0;
    clock_of_rows_ = true;
  }
  if (seen != nullptr && clock_of_rows_) advance_to(now_, *std::max_element(seen, seen + rows));
  const std::uint32_t* periods = part.columns.fields[kPeriod];
  if (periods == nullptr) return;
  if (empty) period_ = 0;
  advance_to(period_, *std::max_element(periods, periods + rows));
}

// Each partition takes its rows of all parts, one part after the other: the rows, their slots and their order are those
// of one call for each part. A checkpoint has the rows of one partition together, so that a single part of it gives
// work to one thread or two.
std::size_t RamTier::put_parts(std::span<PutPart> parts, int threads, std::span<const Batch* const> pinned) {
  std::size_t rows = 0;
  bool empty = size() == 0;
  for (const PutPart& part : parts) {
    take_clock(part, empty);
    start_eviction(part.batch);
    rows += part.batch.size();
    empty = empty && rows == 0;
  }
  if (rows < kSmallBatch) threads = 1;
  std::atomic<std::size_t> turned_away{0}, made{0};
  const std::uint64_t start = next_start_.fetch_add(7, std::memory_order_relaxed);
  make_rows(made, [&] {
    parallel_for(threads, partitions_.size(), [&](std::size_t task) {
      const std::size_t p = (task + start) & (partitions_.size() - 1);
      if (std::ranges::none_of(parts, [=](const PutPart& part) { return part.has(p); })) return;
      Partition& partition = *partitions_[p];
      const std::unique_lock held(partition.mutex);
      const Counts before = partition.counts;
      const auto add_counts = [&] {  // once: threads that count every row in one place wait for each other
        made += partition.counts.created - before.created;
        turned_away += partition.counts.turned_away - before.turned_away;
      };
      try {
        for (PutPart& part : parts)
          if (part.has(p)) put_in(partition, part, pinned);
      } catch (...) {
        add_counts();
        throw;
      }
      add_counts();
    });
  });
  for (const PutPart& part : parts) part.batch.looked_up = true;
  return turned_away;
}

// Rows that are there are overwritten first, so that room made for new ones never costs one of them.
void RamTier::put_in(Partition& partition, PutPart& part, std::span<const Batch* const> pinned) const {
  Batch& batch = part.batch;
  const std::size_t begin = batch.unique_begin(partition.number), end = batch.unique_begin(partition.number + 1);
  visit_partition(batch, partition.number, {true, layout_.row_bytes()}, [&](auto&, Visit& visit, Applied&) {
    if (visit.row == nullptr) return;
    partition.changes.before_change(batch.slots()[visit.unique]);
    bump_version(visit.row);
    put_row(partition, batch.slots()[visit.unique], part.columns, part.places[visit.unique]);
  });
  const bool whole = part.columns.state != nullptr || layout_.state_dim() == 0;
  const Start start = whole ? Start::zeros : Start::first_values;  // state that is not given is that of a new row
  PinnedRows stay(pinned, partition.number, partition.slab, spec_.life.evicted_stay ? &batch : nullptr);
  partition.order.restart();
  for (std::size_t unique = begin; unique < end; ++unique) {
    if (unique + kInsertAhead < end)
      __builtin_prefetch(partition.index.home(secret_hash(batch.keys()[unique + kInsertAhead])), 1);
    if (batch.slots()[unique] < kTurnedAway) continue;
    if (create(partition, batch, unique, stay, start) != nullptr) {
      put_row(partition, batch.slots()[unique], part.columns, part.places[unique]);
    } else {
      batch.slots()[unique] = kTurnedAway;
      ++partition.counts.turned_away;
    }
  }
}

void RamTier::reserve(std::size_t rows, int threads) {
  const std::size_t share = rows / partitions_.size() + 1;
  parallel_for(threads, partitions_.size(), [&](std::size_t p) {
    Partition& partition = *partitions_[p];
    const std::unique_lock held(partition.mutex);
    if (partition.slab.end() == 0) partition.index.reserve(std::min<std::size_t>(share, partition.slab.rows_max()));
  });
  // One partition after the other: its chunks lie side by side, and two threads that fill two partitions touch no 2 MB
  // page together, which the system would clear twice.
  for (const auto& partition : partitions_) {
    const std::unique_lock held(partition->mutex);
    if (partition->slab.end() == 0) partition->slab.reserve(share);
  }
}

// The version comes last: a process that dies before leaves a new row free.
void RamTier::put_row(Partition& partition, std::uint32_t index, const Columns& columns, std::size_t at) const {
  const std::size_t dim = layout_.dim(), state_dim = layout_.state_dim();
  std::byte* row = partition.slab.row(index);
  if (spec_.life.ordered()) partition.order.remove(index);  // its frequency may change
  const std::uint32_t now = now_.load(std::memory_order_relaxed);
  if (layout_.has(kLastSeen)) layout_.field(row, kLastSeen) = now;
  if (layout_.has(kPeriod) && columns.state != nullptr) layout_.field(row, kPeriod) = period_;  // unless one is given
  for (int field = kVersion + 1; field < kExportedFields; ++field)
    if (columns.fields[field] != nullptr && layout_.has(Field(field)))
      layout_.field(row, Field(field)) = columns.fields[field][at];
  if (layout_.has(kLastSeen)) {
    std::uint32_t& last_seen = layout_.field(row, kLastSeen);
    last_seen = std::min(last_seen, now);
    partition.seen_since = std::min(partition.seen_since, last_seen);
  }
  const std::uint32_t* versions = columns.fields[kVersion];
  const std::uint32_t version = std::max(versions != nullptr ? versions[at] : Layout::version(row), 1u);  // 0: free
  const float* value = columns.values + at * dim;
  partition.counts.saturated += store_value(row, value, version);
  if (columns.state != nullptr)
    std::copy_n(columns.state + at * state_dim, state_dim, layout_.state(row));
  else
    row_kernels().follow_value(rule_, value, layout_.state(row), dim);
  Layout::mark(row, version);
  if (spec_.life.ordered()) partition.order.add(index);
}

}  // namespace hotrow::store
