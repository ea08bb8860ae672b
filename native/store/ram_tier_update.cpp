// Changing rows: gradients, changes from caches, whole rows.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include "store/ram_tier_visit.h"
#include "store/scratch.h"

namespace hotrow::store {
namespace {

// One gradient per key of the batch -> their sums per unique key (`only` null: of all; others stay undefined). Each
// thread owns a range of unique keys and walks the batch in order, so the sums do not depend on the number of threads.
void fold(const Batch& batch, const Gradients& gradients, const std::uint8_t* only, float* sums, std::size_t dim,
          int threads) {
  constexpr int kRangesMax = 16;  // everyone reads the whole batch, so more would not help
  const auto ranges = static_cast<std::size_t>(batch.size() < kSmallBatch ? 1 : std::clamp(threads, 1, kRangesMax));
  parallel_for(threads, ranges, [&](std::size_t range) {
    const auto begin = static_cast<std::uint32_t>(batch.unique() * range / ranges);
    const auto end = static_cast<std::uint32_t>(batch.unique() * (range + 1) / ranges);
    static thread_local Scratch<std::uint32_t> room;
    std::uint32_t* const own = room.take(batch.size() + 1);
    std::size_t count = 0;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      own[count] = static_cast<std::uint32_t>(i);  // kept only if it is ours: cheaper than a branch no one can guess
      const std::uint32_t unique = batch.inverse()[i];
      count += unique - begin < end - begin && (only == nullptr || only[unique] != 0);
    }
    std::fill(sums + begin * dim, sums + end * dim, 0.0f);
    row_kernels().fold(sums, gradients, batch.inverse(), own, count, dim);
  });
}

// Which unique keys have a weight other than 0; empty where there are no weights. A key without any is not updated: an
// update with a gradient of 0 would still move its moments.
std::vector<bool> weighted_keys(const Batch& batch, const Gradients& gradients) {
  if (gradients.weights == nullptr) return {};
  std::vector<bool> weighted(batch.unique());
  for (std::size_t i = 0; i < batch.size(); ++i)
    if (gradients.weights[i] != 0) weighted[batch.inverse()[i]] = true;
  return weighted;
}

}  // namespace

std::uint32_t RamTier::swap_period(std::uint64_t samples) const {
  const std::uint64_t length = spec_.optimizer.swap_period;
  return length == 0 ? 0 : clamp32(samples / length);
}

// What a second moment decayed to period `from` is multiplied by to stand at period `to`.
float RamTier::swap_factor(std::uint32_t from, std::uint32_t to) const {
  return from >= to ? 1.0f : static_cast<float>(std::pow(spec_.optimizer.swap_decay, to - from));
}

// How much the second moment has to lose before an update in `period`, which the row then stands at.
float RamTier::swap_decay(std::byte* row, std::uint32_t period) const {
  if (!layout_.has(kPeriod)) return 1;
  std::uint32_t& stands_at = layout_.field(row, kPeriod);
  const float factor = swap_factor(stands_at, period);
  stands_at = std::max(stands_at, period);
  return factor;
}

// Of Adam's state only v decays.
void RamTier::decay_state(float* state, float factor, float floor) const {
  const std::size_t moment = rule_.rule == Rule::adam ? layout_.dim() : 0;
  if (factor != 1) row_kernels().decay(state + moment, factor, floor, layout_.state_dim() - moment);
}

void RamTier::stamp(std::byte* row, When when) const {
  bump_version(row);
  layout_.field(row, kLastUpdate) = clamp32(when.step + 1);
}

// The rule with the learning rate of this call. Adam's is in its step sizes.
RamTier::Update RamTier::update_of(When when) const {
  const Optimizer& optimizer = spec_.optimizer;
  Update update{.when = when, .rule = rule_, .adam_scale = static_cast<float>(when.lr_scale), .period = period_};
  if (when.lr_scale != 1) {
    Optimizer scaled = optimizer;
    scaled.lr *= when.lr_scale;
    update.rule = update_rule(scaled);
  }
  if (optimizer.rule == Rule::adam && !optimizer.correct_by_row)
    update.adam_step = update.adam_scale * adam_steps_.at(when.step + 1);
  return update;
}

RowTouch RamTier::touch_of(std::byte* row, float squares, const Update& update) const {
  const Optimizer& optimizer = spec_.optimizer;
  RowTouch touch{.squares = squares};
  const double clip = optimizer.clip;
  if (clip > 0 && double{squares} > clip * clip) touch.scale = static_cast<float>(clip / std::sqrt(double{squares}));
  if (optimizer.swap_period != 0) touch.swap_decay = swap_decay(row, update.period);
  if (optimizer.rule == Rule::adam)
    touch.step_size = optimizer.correct_by_row ? update.adam_scale * adam_steps_.at(++layout_.field(row, kUpdates))
                                               : update.adam_step;
  return touch;
}

// A row whose gradient is not finite (or too large to be squared) stays as it is.
void RamTier::apply_rows(Partition& partition, std::span<RowUpdate> rows, const Update& update, Applied& done) const {
  const RowKernels& kernels = row_kernels();
  const std::size_t dim = layout_.dim();
  kernels.squared_norms(rows.data(), rows.size(), dim);
  const auto refused = std::ranges::remove_if(
      rows, [](float squares) { return !std::isfinite(squares); },
      [](const RowUpdate& row) { return row.touch.squares; });
  done.refused += refused.size();
  rows = rows.first(rows.size() - refused.size());
  done.rows += rows.size();
  static thread_local Scratch<float> room;
  float* const wide = layout_.narrow() ? room.take(rows.size() * dim) : nullptr;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    RowUpdate& row = rows[i];
    if (layout_.keeps_base()) keep_base(partition, row.row);
    row.touch = touch_of(row.row, row.touch.squares, update);
    row.state = layout_.state(row.row);
    row.value = layout_.narrow() ? wide + i * dim : layout_.value(row.row);
    if (layout_.narrow()) widen_into(row.row, row.value);
  }
  kernels.update[static_cast<int>(rule_.rule)](update.rule, rows.data(), rows.size(), dim);
  for (const RowUpdate& row : rows) {
    stamp(row.row, update.when);
    if (layout_.narrow()) partition.counts.saturated += store_value(row.row, row.value, Layout::version(row.row));
  }
}

Applied RamTier::apply(Batch& batch, const Gradients& gradients, Per per, When when, int threads,
                       const Selection& selection) {
  const std::size_t dim = layout_.dim();
  const std::vector<bool> weighted = weighted_keys(batch, gradients);
  advance_to(period_, swap_period(when.samples));
  const Update shared = update_of(when);
  const float* sums = gradients.values;
  if (per == Per::key) {
    float* const own = unique_rows(batch, dim);
    fold(batch, gradients, selection.only, own, dim, threads);
    sums = own;
  }
  const auto update = [&](Partition& partition, std::span<Visit> visits, Applied& done) {
    std::array<RowUpdate, kVisitBlock> rows;
    std::size_t count = 0;
    for (const Visit& visit : visits) {
      if (visit.row == nullptr || awaited(visit.row)) {
        ++(batch.slots()[visit.unique] == kTurnedAway ? done.unadmitted : done.absent);
      } else if (!weighted.empty() && !weighted[visit.unique]) {
        ++done.weightless;
      } else {
        partition.changes.before_change(batch.slots()[visit.unique]);
        rows[count++] = {.row = visit.row, .gradient = sums + visit.unique * dim};
      }
    }
    apply_rows(partition, {rows.data(), count}, shared, done);
  };
  return count(visit(batch, threads, {true, layout_.row_bytes(), selection}, update));
}

Applied RamTier::add(Batch& batch, const float* values, const float* state, const std::uint32_t* clocks, When when,
                     int threads) {
  const std::size_t dim = layout_.dim(), state_dim = layout_.state_dim();
  const std::uint32_t period = swap_period(when.samples);
  // The floor holds for a whole moment: what a part of it loses in a period that has ended cannot be told from the
  // part.
  if (state != nullptr && spec_.optimizer.swap_floor != 0 && period < period_)
    throw std::invalid_argument("samples=" + std::to_string(when.samples) + ": a change of state from SWAP period " +
                                std::to_string(period) + " cannot be added at period " + std::to_string(period_) +
                                " under a floor: add it in its period, or leave the floor out");
  advance_to(period_, period);
  std::vector<std::uint32_t> newest(clocks != nullptr ? batch.unique() : 0);
  for (std::size_t i = 0; clocks != nullptr && i < batch.size(); ++i)
    newest[batch.inverse()[i]] = std::max(newest[batch.inverse()[i]], clocks[i]);
  float* const changes = unique_rows(batch, dim + state_dim);  // of all values, then of all states
  float* const state_changes = changes + batch.unique() * dim;
  fold(batch, {values, nullptr, nullptr}, nullptr, changes, dim, threads);
  if (state != nullptr) fold(batch, {state, nullptr, nullptr}, nullptr, state_changes, state_dim, threads);
  const auto change = [&](Partition& partition, const Visit& visit, Applied& done) {
    const std::size_t u = visit.unique;
    float* const state_change = state != nullptr ? state_changes + u * state_dim : nullptr;
    if (visit.row == nullptr) {
      ++(batch.slots()[u] == kTurnedAway ? done.unadmitted : done.absent);
      return;
    }
    partition.changes.before_change(batch.slots()[u]);
    if (!add_row(partition, visit.row, changes + u * dim, state_change, when)) {
      ++done.refused;
    } else {
      ++done.rows;
      if (clocks != nullptr) layout_.field(visit.row, kClock) = std::max(layout_.field(visit.row, kClock), newest[u]);
    }
  };
  return count(visit(batch, threads, {true, layout_.row_bytes()}, change));
}

// Row and change may stand at different SWAP periods. The earlier one is decayed to the period of the other, so that
// the sum stands at one.
bool RamTier::add_row(Partition& partition, std::byte* row, const float* value, float* state, When when) const {
  const RowKernels& kernels = row_kernels();
  const std::size_t dim = layout_.dim(), state_dim = layout_.state_dim();
  if (!std::isfinite(kernels.squared_norm(value, dim))) return false;
  if (state != nullptr && !std::isfinite(kernels.squared_norm(state, state_dim))) return false;
  if (spec_.optimizer.swap_period != 0) {
    const std::uint32_t of_change = swap_period(when.samples), of_row = layout_.field(row, kPeriod);
    decay_state(layout_.state(row), swap_decay(row, of_change), rule_.swap_floor);
    if (state != nullptr) decay_state(state, swap_factor(of_change, of_row), 0);
  }
  float* sum = open_value(row);
  kernels.add(sum, value, dim);
  if (state != nullptr) kernels.add(layout_.state(row), state, state_dim);
  stamp(row, when);
  if (layout_.narrow()) partition.counts.saturated += store_value(row, sum, Layout::version(row));
  return true;
}

Applied RamTier::count(const Applied& applied) {
  refused_ += applied.refused;
  absent_ += applied.absent;
  unadmitted_ += applied.unadmitted;
  return applied;
}

}  // namespace hotrow::store
