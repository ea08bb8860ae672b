// Finding, creating and removing rows.
#include "store/ram_tier.h"

#include <unistd.h>

#include <cmath>
#include <cstring>

#include "store/ram_tier_visit.h"

namespace hotrow::store {
namespace {

std::atomic<std::uint64_t> tables_made{0};

FieldSet fields_of(const TableSpec& spec) {
  FieldSet used{};
  const LifeSpec& life = spec.life;
  used[kClock] = spec.clock;
  used[kLastSeen] = spec.last_seen || life.ordered() || life.expiry != 0;
  used[kPeriod] = spec.optimizer.swap_period != 0;
  used[kUpdates] = spec.optimizer.rule == Rule::adam && spec.optimizer.correct_by_row;
  used[kFrequency] = life.by_frequency();
  used[kOlder] = used[kNewer] = life.ordered() && !spec.keeps_base;
  used[kNextUse] = life.eviction == Eviction::ahead;
  used[kBasePeriod] = spec.keeps_base && used[kPeriod];
  return used;
}

}  // namespace

Layout layout_of(const TableSpec& spec) {
  return Layout(spec.dim, spec.type, spec.optimizer.state_dim(spec.dim), fields_of(spec), spec.keeps_base);
}

RamTier::RamTier(const TableSpec& spec, std::unique_ptr<Segment> segment)
    : number_(++tables_made),
      process_(getpid()),
      spec_(spec),
      layout_(layout_of(spec)),
      rule_(update_rule(spec.optimizer)),
      adam_steps_(spec.optimizer),
      ticks_(spec.life),
      counts_occurrences_(spec.life.by_frequency() || spec.life.admission.kind == AdmissionKind::at_least),
      segment_(std::move(segment)) {
  const std::size_t partitions = std::size_t{1} << spec.partitions_log2;
  for (std::size_t p = 0; p < partitions; ++p) partitions_.push_back(std::make_unique<Partition>(*this, p));
}

// In a forked child the table is as other threads left it in the middle of whatever they did: nothing is taken apart
// there.
RamTier::~RamTier() {
  if (getpid() == process_) return;
  if (segment_ != nullptr) segment_->leave();
  [[maybe_unused]] const Segment* segment = segment_.release();
  [[maybe_unused]] const Arena* arena = arena_.release();
  for (auto& partition : partitions_) {
    [[maybe_unused]] const Partition* left = partition.release();
  }
}

std::size_t RamTier::rows_within(const TableSpec& spec, std::size_t bytes, bool in_segment) {
  // Segments of the index that just split are 42 % full, and churn splits some that would not have to: 14 bytes. The
  // list of keys that are gone takes up to 2.
  const double links = spec.keeps_base && spec.life.ordered() ? Order::kLinkBytes : 0;  // of a cache: not in the rows
  const double evicted = spec.keeps_base && spec.life.by_frequency() ? 16 : 0;  // what is remembered of evicted rows
  const double beside_row = 16 + links + evicted;
  constexpr std::size_t kPartitionBytes = 20 << 10;  // the first segment of the index, chunks of odd size
  constexpr std::size_t kFrequencyBytes =
      std::size_t{2} * Order::kFrequencies * sizeof(std::uint64_t);  // heads of LFU's lists
  constexpr std::size_t kSegmentBytes = 18 << 20;  // header, push log, the block that pieces are cut from
  const std::size_t per_partition = kPartitionBytes + (spec.life.by_frequency() ? kFrequencyBytes : 0);
  const std::size_t fixed =
      (per_partition << spec.partitions_log2) + spec.life.admission.filter_bytes + (in_segment ? kSegmentBytes : 0);
  if (bytes <= fixed) return 0;
  const std::size_t row_bytes = layout_of(spec).row_bytes();
  // The last chunk of a cache does not end with its rows, because those of batches in flight may need more: what it has
  // more is as large as all others together where it is small.
  const std::size_t last = std::min(Slab::chunk_bytes(row_bytes), (bytes >> spec.partitions_log2) / 2);
  const std::size_t usable =
      bytes - fixed - (spec.keeps_base ? std::min(last << spec.partitions_log2, bytes - fixed) : 0);
  // Pieces of a segment do not cross its blocks: what is left at their ends is lost.
  const double piece = static_cast<double>(Slab::chunk_bytes(row_bytes) + kPieceAlign);
  const double block = std::max(static_cast<double>(kBlockMax), piece);
  const double lost = in_segment ? block / (std::floor(block / piece) * piece) : 1;
  const double per_row = static_cast<double>(row_bytes) * lost + beside_row;
  return static_cast<std::size_t>(static_cast<double>(usable) / per_row);
}

// Where a lookup writes the row of each unique key, and how rows reach all positions of their key.
struct RamTier::Output {
  Output(const RamTier& table, const Batch& of, float* to, Per per)
      : tier(table),
        batch(of),
        out(to),
        rows(to == nullptr || per == Per::unique ? to : unique_rows(of, table.layout_.dim())) {}

  // `row` null: every element becomes `otherwise`.
  void write(std::size_t unique, const std::byte* row, float otherwise) const {
    if (rows == nullptr) return;
    float* to = rows + unique * tier.layout_.dim();
    if (row != nullptr)
      tier.widen_into(row, to);
    else
      std::fill_n(to, tier.layout_.dim(), otherwise);
  }

  // One row per unique key -> one row per key of the batch.
  void expand(int threads) const {
    if (rows == out) return;
    constexpr std::size_t kCacheBytes = 4 << 20;  // a larger output has left a core's caches before anyone reads it
    const std::size_t dim = tier.layout_.dim(), size = batch.size();
    const bool past_caches = size * dim * sizeof(float) > kCacheBytes;
    const std::size_t stretches = size < kSmallBatch ? 1 : static_cast<std::size_t>(threads) * 4;
    parallel_for(threads, stretches, [&](std::size_t i) {
      row_kernels().expand(out, rows, batch.inverse(), size * i / stretches, size * (i + 1) / stretches, dim,
                           past_caches);
    });
  }

  const RamTier& tier;
  const Batch& batch;
  float *out, *rows;
};

std::size_t RamTier::find(Batch& batch, float* out, Per per, int threads) const {
  const Output output(*this, batch, out, per);
  const Applied seen = visit(batch, threads, {false, layout_.value_end()}, [&](auto&, Visit& visit, Applied& done) {
    done.absent += visit.row == nullptr;
    output.write(visit.unique, visit.row, std::numeric_limits<float>::quiet_NaN());
  });
  output.expand(threads);
  return seen.absent;
}

std::size_t RamTier::find_or_init(Batch& batch, float* out, Per per, const Sight& sight, int threads,
                                  std::span<const Batch* const> pinned) {
  for (const Batch* plan : pinned) check_plan(*plan);
  const Output output(*this, batch, out, per);
  const std::uint64_t call = calls_.fetch_add(1, std::memory_order_relaxed);
  std::atomic<std::size_t> turned_away{0}, made{0}, without_room{0};
  advance(sight);
  start_eviction(batch);
  const auto keep = [&](auto&, Visit& visit, Applied&) {
    if (visit.row != nullptr) output.write(visit.unique, visit.row, 0);
  };
  const auto finish = [&](Partition& partition, std::size_t begin, std::size_t end) {
    PinnedRows stay(pinned, partition.number, partition.slab, spec_.life.evicted_stay ? &batch : nullptr);
    if (sight.seen) see(partition, batch, begin, end);
    partition.order.restart();
    for (std::size_t unique = begin; unique < end; ++unique) {
      std::uint32_t& slot = batch.slots()[unique];
      if (slot < kTurnedAway) continue;
      const bool admitted = sight.seen ? let_in(partition, batch, unique, call) : partition.admission.open();
      const std::byte* row = admitted ? create(partition, batch, unique, stay) : nullptr;
      if (row == nullptr) {
        slot = kTurnedAway;
        ++partition.counts.turned_away;
        ++turned_away;
        if (admitted) ++without_room;
      } else {
        ++made;
      }
      output.write(unique, row, spec_.life.default_value);
    }
    // Twice as many as were visited: where all keys are new, the search must outrun the growth.
    if (spec_.life.expiry != 0) sweep(partition, static_cast<std::uint32_t>(2 * (end - begin)));
  };
  make_rows(made, [&] { visit(batch, threads, {true, layout_.value_end()}, keep, finish); });
  output.expand(threads);
  batch.without_room = without_room;
  return turned_away;
}

void RamTier::read(Batch& batch, float* out, Per per, const Selection& selection, int threads) const {
  const std::size_t dim = layout_.dim();
  const Output output(*this, batch, out, per);
  static thread_local Scratch<std::uint8_t> room;
  std::uint8_t* const found = room.take(batch.unique());
  std::fill_n(found, batch.unique(), std::uint8_t{0});
  visit(batch, threads, {false, layout_.value_end(), selection}, [&](auto&, Visit& visit, Applied&) {
    if (visit.row == nullptr) return;
    output.write(visit.unique, visit.row, 0);
    found[visit.unique] = 1;
  });
  if (per == Per::unique) return;
  const std::size_t stretches = batch.size() < kSmallBatch ? 1 : static_cast<std::size_t>(threads) * 4;
  parallel_for(threads, stretches, [&](std::size_t i) {
    for (std::size_t at = batch.size() * i / stretches; at < batch.size() * (i + 1) / stretches; ++at) {
      const std::uint32_t unique = batch.inverse()[at];
      if (found[unique] != 0) std::copy_n(output.rows + unique * dim, dim, out + at * dim);
    }
  });
}

void RamTier::read(Batch& batch, const Columns& out, int threads) const {
  const std::uint32_t* const places = places_of(batch);
  visit(batch, threads, {false, layout_.row_bytes()}, [&](auto&, Visit& visit, Applied&) {
    const std::size_t at = places[visit.unique];
    if (visit.row != nullptr) {
      copy_columns(visit.row, out, at);
      return;
    }
    out.keys[at] = batch.keys()[visit.unique];
    for (int field = 0; field < kExportedFields; ++field)
      if (layout_.has(Field(field))) out.fields[field][at] = 0;
  });
}

void RamTier::read(Batch& batch, Field field, std::uint32_t* out, int threads) const {
  std::vector<std::uint32_t> found(batch.unique());
  visit(batch, threads, {false, sizeof(Key)}, [&](auto&, Visit& visit, Applied&) {
    found[visit.unique] = visit.row == nullptr ? 0 : layout_.field(static_cast<const std::byte*>(visit.row), field);
  });
  for (std::size_t i = 0; i < batch.size(); ++i) out[i] = found[batch.inverse()[i]];
}

std::size_t RamTier::touch(Batch& batch, const Sight& sight, int threads) {
  advance(sight);
  const auto count = [](auto&, Visit& visit, Applied& done) { done.rows += visit.row != nullptr; };
  const auto finish = [&](Partition& partition, std::size_t begin, std::size_t end) {
    see(partition, batch, begin, end);
  };
  return visit(batch, threads, {true, sizeof(Key)}, count, finish).rows;
}

std::size_t RamTier::erase(Batch& batch, int threads) {
  const Applied gone = visit(batch, threads, {true, sizeof(Key)}, [&](auto& partition, Visit& visit, Applied& done) {
    if (visit.row == nullptr) return;
    remove(partition, std::exchange(batch.slots()[visit.unique], kNoRow));
    ++partition.counts.erased;
    ++done.rows;
  });
  return gone.rows;
}

void RamTier::first_values(std::span<const Key> keys, float* out, int threads) const {
  constexpr std::size_t kRun = 1024;
  parallel_for(threads, (keys.size() + kRun - 1) / kRun, [&](std::size_t task) {
    std::vector<std::uint64_t> row(layout_.row_bytes() / sizeof(std::uint64_t));  // as it would stand in the table
    auto* const bytes = reinterpret_cast<std::byte*>(row.data());
    const std::size_t end = std::min(keys.size(), (task + 1) * kRun);
    for (std::size_t i = task * kRun; i < end; ++i) {
      float* to = out + i * layout_.dim();
      row_kernels().first_values(spec_.first_values, keys[i], to, layout_.dim());
      if (!layout_.narrow()) continue;
      Layout::key(bytes) = keys[i];
      store_value(bytes, to, 1);
      widen_into(bytes, to);
    }
  });
}

}  // namespace hotrow::store
