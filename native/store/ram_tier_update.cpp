// Changing rows: gradients, changes from caches, whole rows.
#include <cmath>
#include <cstring>

#include "store/ram_tier_visit.h"

namespace hotrow::store {
namespace {

void bump_version(std::byte* row) {
  std::uint32_t& version = Layout::version(row);
  version = version == std::numeric_limits<std::uint32_t>::max() ? 2 : version + 1;  // 0 and 1 mean free and fresh
}

}  // namespace

// One gradient per key of the batch -> their sums per unique key. Each thread owns a range of unique keys and walks the
// batch in order, so the sums do not depend on the number of threads.
void RamTier::fold(Batch& batch, const Gradients& gradients, float* sums, std::size_t dim, int threads) const {
  const std::size_t ranges = batch.size() < kSmallBatch ? 1 : static_cast<std::size_t>(threads);
  parallel_for(threads, ranges, [&](std::size_t range) {
    const auto begin = static_cast<std::uint32_t>(batch.unique() * range / ranges);
    const auto end = static_cast<std::uint32_t>(batch.unique() * (range + 1) / ranges);
    static thread_local std::vector<std::uint32_t> own;
    own.resize(batch.size() + 1);
    std::size_t count = 0;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      own[count] = static_cast<std::uint32_t>(i);  // kept only if it is ours: cheaper than a branch no one can guess
      count += batch.inverse()[i] - begin < end - begin;
    }
    std::fill(sums + begin * dim, sums + end * dim, 0.0f);
    row_kernels().fold(sums, gradients, batch.inverse(), own.data(), count, dim);
  });
}

// How much the second moment has to lose before an update in `period`, which the row then stands at. A row that was
// never updated has nothing to lose.
float RamTier::swap_decay(std::byte* row, std::uint32_t period) const {
  if (!layout_.has(kPeriod)) return 1;
  std::uint32_t& stands_at = layout_.field(row, kPeriod);
  const std::uint32_t behind = Layout::version(row) > 1 && period > stands_at ? period - stands_at : 0;
  stands_at = std::max(stands_at, period);
  return behind == 0 ? 1.0f : static_cast<float>(std::pow(spec_.optimizer.swap_decay, behind));
}

void RamTier::stamp(std::byte* row, When when) const {
  bump_version(row);
  layout_.field(row, kLastUpdate) = clamp32(when.step + 1);
}

// False: the gradient is not finite (or too large to be squared), and the row stays as it is.
bool RamTier::apply_row(std::byte* row, const float* gradient, When when) const {
  const RowKernels& kernels = row_kernels();
  const Optimizer& optimizer = spec_.optimizer;
  const float squares = kernels.squared_norm(gradient, layout_.dim());
  if (!std::isfinite(squares)) return false;
  RowTouch touch;
  const double clip = optimizer.clip;
  if (clip > 0 && squares > clip * clip) touch.scale = static_cast<float>(clip / std::sqrt(double{squares}));
  if (optimizer.swap_period != 0) touch.swap_decay = swap_decay(row, clamp32(when.samples / optimizer.swap_period));
  if (optimizer.rule == Rule::adam)
    touch.step_size = adam_steps_.at(optimizer.correct_by_row ? ++layout_.field(row, kUpdates) : when.step + 1);
  kernels.update[static_cast<int>(rule_.rule)](rule_, touch, layout_.value(row), layout_.state(row), gradient,
                                               layout_.dim());
  stamp(row, when);
  return true;
}

Applied RamTier::apply(Batch& batch, const Gradients& gradients, Per per, When when, int threads) {
  const std::size_t dim = layout_.dim();
  const float* sums = gradients.values;
  if (per == Per::key) {
    float* own = batch.rows(dim);
    fold(batch, gradients, own, dim, threads);
    sums = own;
  }
  Tally tally;
  visit(batch, threads, {true, layout_.row_bytes()}, [&](Partition&, Visit& block) {
    Applied done;
    for (std::uint32_t i = 0; i < block.count; ++i) {
      if (block.rows[i] == nullptr)
        ++done.absent;
      else
        ++(apply_row(block.rows[i], sums + (block.first + i) * dim, when) ? done.rows : done.refused);
    }
    tally.count(done);
  });
  return tell(tally);
}

Applied RamTier::add(Batch& batch, const float* values, const float* state, const std::uint32_t* clocks, When when,
                     int threads) {
  const std::size_t dim = layout_.dim(), state_dim = layout_.state_dim(), both = dim + state_dim;
  // Values first, then state, one block of sums each.
  float* sums = batch.rows(both);
  float* state_sums = sums + batch.unique() * dim;
  fold(batch, {values, nullptr, nullptr}, sums, dim, threads);
  if (state != nullptr) fold(batch, {state, nullptr, nullptr}, state_sums, state_dim, threads);
  std::vector<std::uint32_t> newest(clocks != nullptr ? batch.unique() : 0);
  for (std::size_t i = 0; clocks != nullptr && i < batch.size(); ++i)
    newest[batch.inverse()[i]] = std::max(newest[batch.inverse()[i]], clocks[i]);
  Tally tally;
  visit(batch, threads, {true, layout_.row_bytes()}, [&](Partition&, Visit& block) {
    Applied done;
    for (std::uint32_t i = 0; i < block.count; ++i) {
      std::byte* row = block.rows[i];
      const std::size_t u = block.first + i;
      const float* change_of_state = state != nullptr ? state_sums + u * state_dim : nullptr;
      if (row == nullptr) {
        ++done.absent;
      } else if (!add_row(row, sums + u * dim, change_of_state, when)) {
        ++done.refused;
      } else {
        ++done.rows;
        if (clocks != nullptr) layout_.field(row, kClock) = std::max(layout_.field(row, kClock), newest[u]);
      }
    }
    tally.count(done);
  });
  return tell(tally);
}

bool RamTier::add_row(std::byte* row, const float* value, const float* state, When when) const {
  const RowKernels& kernels = row_kernels();
  const std::size_t dim = layout_.dim(), state_dim = layout_.state_dim();
  if (!std::isfinite(kernels.squared_norm(value, dim))) return false;
  if (state != nullptr && !std::isfinite(kernels.squared_norm(state, state_dim))) return false;
  if (spec_.optimizer.swap_period != 0) {
    const float factor = swap_decay(row, clamp32(when.samples / spec_.optimizer.swap_period));
    const std::size_t moment = rule_.rule == Rule::adam ? dim : 0;  // of Adam's state only v decays
    if (factor != 1) kernels.decay(layout_.state(row) + moment, factor, rule_.swap_floor, state_dim - moment);
  }
  kernels.add(layout_.value(row), value, dim);
  if (state != nullptr) kernels.add(layout_.state(row), state, state_dim);
  stamp(row, when);
  return true;
}

Applied RamTier::tell(const Tally& tally) {
  refused_ += tally.refused;
  absent_ += tally.absent;
  return {tally.rows, tally.refused, tally.absent};
}

void RamTier::put(Batch& batch, const Columns& columns, int threads) {
  if (batch.unique() != batch.size()) throw std::invalid_argument("put: a key stands in the batch twice");
  std::vector<std::uint32_t> places(batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) places[batch.inverse()[i]] = static_cast<std::uint32_t>(i);
  visit(batch, threads, {true, layout_.row_bytes()}, [&](Partition& partition, Visit& block) {
    for (std::uint32_t i = 0; i < block.count; ++i) {
      const std::uint32_t u = block.first + i;
      if (block.rows[i] == nullptr) {
        block.rows[i] = create(partition, batch.keys()[u], block.hashes[i], batch.slots()[u]);
        ++created_;
      } else {
        bump_version(block.rows[i]);
      }
      put_row(block.rows[i], columns, places[u]);
    }
  });
}

void RamTier::put_row(std::byte* row, const Columns& columns, std::size_t at) const {
  const std::size_t dim = layout_.dim(), state_dim = layout_.state_dim();
  std::memcpy(layout_.value(row), columns.values + at * dim, dim * sizeof(float));
  if (columns.state != nullptr)
    std::memcpy(layout_.state(row), columns.state + at * state_dim, state_dim * sizeof(float));
  else
    row_kernels().follow_value(rule_, layout_.value(row), layout_.state(row), dim);
  for (int field = 0; field < kFields; ++field)
    if (columns.fields[field] != nullptr && layout_.has(Field(field)))
      layout_.field(row, Field(field)) = columns.fields[field][at];
  if (Layout::version(row) == 0) Layout::version(row) = 1;  // 0 would mean free
}

}  // namespace hotrow::store
