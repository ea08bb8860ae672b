// A table of rows in memory: partitions by hash, each with its own lock, slab, index and order of eviction. Every call
// takes a batch and runs on as many threads as asked; what it computes does not depend on how many.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "store/arena.h"
#include "store/batch.h"
#include "store/index.h"
#include "store/layout.h"
#include "store/life.h"
#include "store/optimizer.h"
#include "store/pinned.h"
#include "store/ram_tier_types.h"
#include "store/rows.h"
#include "store/segment.h"
#include "store/slab.h"

namespace hotrow::store {

class RamTier {
 public:
  // With a segment the rows live there; what an earlier process left in it is taken over by attach(), before any other
  // call.
  explicit RamTier(const TableSpec& spec, std::unique_ptr<Segment> segment = nullptr);
  // A forked child must not call its parent's table; destroying it there is harmless.
  ~RamTier();
  Attached attach(int threads);

  // How many rows fit into so many bytes, everything counted: the index at its loosest, room for growth, the filter.
  static std::size_t rows_within(const TableSpec& spec, std::size_t bytes, bool in_segment);

  const Layout& layout() const { return layout_; }
  int partitions_log2() const { return spec_.partitions_log2; }
  Segment* segment() const { return segment_.get(); }
  bool counts_occurrences() const { return counts_occurrences_; }  // its batches have to be counted
  Batch batch(std::span<const Key> keys, int threads) const {
    return Batch(keys, spec_.partitions_log2, counts_occurrences_, threads);
  }
  Batch batch_of_distinct(std::span<const Key> keys) const {
    return Batch::of_distinct(keys, spec_.partitions_log2, counts_occurrences_);
  }

  // Rows into `out` (null: only look); absent ones become NaN. Returns how many unique keys are absent. Changes
  // nothing.
  std::size_t find(Batch& batch, float* out, Per per, int threads) const;
  // Absent rows are created with their first values, if their keys are let in; others give the default row. Rows that
  // are there come first, so that room made for new ones never costs a row of the same batch that was there. Rows of
  // the pinned plans, where their last lookups found them, are not evicted: a key whose row would need the place of one
  // is turned away. Returns how many unique keys were turned away.
  std::size_t find_or_init(Batch& batch, float* out, Per per, const Sight& sight, int threads,
                           std::span<const Batch* const> pinned = {});
  // Rows that exist into `out`, and nothing else there is written; no row is seen. Changes nothing.
  void read(Batch& batch, float* out, Per per, const Selection& selection, int threads) const;

  // Gradients per unique key are summed already: they take neither weights nor rows.
  // Selections that share no key may be applied one after the other: the bits are those of one call.
  Applied apply(Batch& batch, const Gradients& gradients, Per per, When when, int threads,
                const Selection& selection = {});
  // Adds changes of value and state (null: none), which stand at the SWAP period of when.samples; clocks (null: none)
  // only ever rise.
  Applied add(Batch& batch, const float* values, const float* state, const std::uint32_t* clocks, When when,
              int threads);
  // Whole rows, one per key, inserted or overwritten; they become the newest. Everyone is let in while there is room;
  // returns how many keys found none, in a table that evicts nobody, or whose rows are all pinned.
  std::size_t put(Batch& batch, const Columns& columns, int threads, std::span<const Batch* const> pinned = {});
  // The same for several parts, which need not be planned: as if they were put one after the other.
  // std::invalid_argument where a key stands in a part twice; then nothing has changed.
  std::size_t put(std::span<const RowsPart> parts, int threads);
  // Makes room for so many rows that are going to be put, so that index and slabs need not grow meanwhile; memory is
  // taken as it is used. Without effect where there were rows already.
  void reserve(std::size_t rows, int threads);

  // Whole rows, one per key, each key once. Of an absent row only the fields are written, all of them 0. Changes
  // nothing.
  void read(Batch& batch, const Columns& out, int threads) const;
  // `field` of every key of the batch, 0 where absent.
  void read(Batch& batch, Field field, std::uint32_t* out, int threads) const;
  // As if a lookup had seen the rows; returns how many exist.
  std::size_t touch(Batch& batch, const Sight& sight, int threads);
  std::size_t erase(Batch& batch, int threads);
  // Removes every row that nobody saw for too long; returns how many.
  std::size_t expire(std::optional<std::uint64_t> samples, int threads);
  void first_values(std::span<const Key> keys, float* out, int threads) const;

  // Up to `most` rows from `cursor` on, which moves; 0 rows: the end. Concurrent changes are seen or not, row by row.
  std::size_t export_rows(std::uint64_t& cursor, std::size_t most, const Columns& out) const;
  // Copies the rows that the batch's next call would evict; `evicted` returns them, and this how many. With `sight` the
  // call is a find_or_init, which makes rows for keys that are admitted, else a put. Those that will be evicted are the
  // first of them in each partition, as long as nothing else changes the table: rows that expire leave others in place.
  std::size_t preview_evictions(Batch& batch, const std::optional<Sight>& sight, int threads,
                                std::span<const Batch* const> pinned);
  // The rows that fell out in the batch's last find_or_init or put.
  std::size_t evicted_rows(const Batch& batch) const;
  void evicted(const Batch& batch, const Columns& out) const;
  // Keys whose rows were evicted or expired since the last call; false: there were more than the list could hold.
  bool take_gone_keys(std::vector<Key>& keys);
  // Keys of a partition, the first to be evicted first.
  std::vector<Key> eviction_order(std::size_t partition) const;

  // Of a cache, whose rows keep a base: ram_tier_cache.cpp. A row's clock is its start clock, and its version counts
  // from 1 at the fetch: version - 1 is the number of updates that the server does not know.
  //
  // Finds the rows of distinct keys and says how they are; rows that are there are seen. `use` is the number of the
  // batch's announcement, 0: it was not announced.
  CachedCounts find_places(Batch& batch, std::uint32_t use, std::uint64_t staleness, const CachedKeys& out,
                           int threads);
  // After it: takes the changes of rows that are ahead, and makes a row for each absent key, which waits for `fill`. As
  // many rows as there are beyond the capacity are evicted, the first in the order, but for those of this batch and of
  // pinned ones: these stay until a later batch. `out` needs room for one change per key that is absent or ahead, and
  // per row beyond the capacity before; those of evicted rows are among them. std::invalid_argument where an absent key
  // stands in the batch twice; then nothing has changed.
  MadePlaces make_places(Batch& batch, std::uint32_t use, std::span<const Batch* const> pinned,
                         const ChangeColumns& out, int threads);
  // The rows of distinct keys, straight to their places in `out`; elements of absent ones become `otherwise`. Returns
  // how many are absent. A row that waits for `fill` is absent, here and for `apply`.
  std::size_t read_placed(Batch& batch, float* out, float otherwise, int threads) const;
  // Where the rows of the batch's unique keys with these numbers are, for columns outside of this table: a number that
  // no other row has while the row is there, -1 without a row. Numbers stay below the most rows that a partition has
  // had, times the partitions. `versions` are 0 where there is no row, or one that waits for `fill`.
  void place_slots(Batch& batch, std::span<const std::uint32_t> uniques, std::int64_t* slots, std::uint32_t* versions,
                   int threads) const;
  // The ids of a batch that will be placed later than all that were announced before; returns its number.
  std::uint32_t announce(Batch& batch, int threads);
  // An announced batch that will not be placed.
  void withdraw(Batch& batch, std::uint32_t use, int threads);
  // The changes of rows that have any. The rows stay, and count as fetched as they are now.
  void take_changes(Batch& batch, const ChangeColumns& out, int threads);
  // Rows of the server in place of those that are here, of the batch's unique keys with these numbers. Changes that it
  // does not know stay on top of them. Keys without a row are passed over.
  void fill(Batch& batch, std::span<const std::uint32_t> uniques, const FetchedRows& rows, int threads);
  std::size_t changed_rows() const;
  std::vector<Key> changed_keys() const;

  // A cut: all rows as they are now, read while other calls change them; one at a time. All partitions are locked for
  // the moment in which it begins. Tables that track changes can cut those since the last cut alone:
  // std::invalid_argument where not all of them are known. Calls that read it are made by one thread after the other.
  void track_changes(bool on);
  CutFacts begin_cut(bool changed_only);
  // Up to `most` further rows, each once: in the order of eviction, or by slot. 0: the end.
  std::size_t cut_rows(std::size_t most, const Columns& out);
  // Keys whose rows were removed or expired since the last cut; none of a cut of all rows.
  std::vector<Key> cut_removed();
  // What admission had counted: keys that wait, by key, or the filter.
  std::vector<std::pair<Key, std::uint32_t>> cut_waiting(std::size_t partition) const;
  std::vector<std::uint8_t> cut_filter(std::size_t partition) const;
  std::size_t cut_copied_bytes() const;
  // A cut that was not saved leaves its changes to the next one.
  void end_cut(bool saved);

  // Puts back what admission had counted, in place of all counts, or of one partition's filter.
  void forget_waiting();
  bool counts_waiting() const;  // one key by one, without a filter
  void restore_waiting(std::span<const Key> keys, const std::uint32_t* counts);
  std::size_t filter_bytes() const;  // of each partition; 0: there is no filter
  void restore_filter(std::size_t partition, std::span<const std::uint8_t> filter);

  std::uint64_t samples() const { return ticks_.samples(now_); }  // the latest that anyone told, down to a tick
  // Rows that are put into an empty table move its clock; to put it back where they are removed again.
  TableClock clock() const { return {now_, period_, clock_of_rows_}; }
  void restore_clock(const TableClock& clock);
  std::size_t size() const;
  Stats stats() const;
  std::vector<std::string> verify() const;

 private:
  struct Partition;
  struct Visit;
  struct Access;
  struct Output;
  struct ChangeWriter;
  struct RowsInUse;
  template <typename Body, typename Finish>
  Applied visit(Batch& batch, int threads, const Access& access, Body&& body, Finish&& finish) const;
  template <typename Body>
  Applied visit(Batch& batch, int threads, const Access& access, Body&& body) const;
  template <typename Body>
  Applied visit_partition(Batch& batch, std::size_t p, const Access& access, Body&& body) const;
  void ask_index(const Partition& partition, const Batch& batch, Visit& visit) const;
  void ask_row(const Partition& partition, Batch& batch, Visit& visit, const Access& access) const;
  void settle(const Partition& partition, Batch& batch, Visit& visit, bool as_found) const;
  void check_plan(const Batch& batch) const;

  // Life: ram_tier_life.cpp
  bool remembers_evicted() const { return spec_.keeps_base && spec_.life.by_frequency(); }  // of a cache
  std::uint32_t quota(std::size_t partition) const;
  std::uint32_t slab_rows_max(std::size_t partition) const;
  bool expired(const std::byte* row) const;
  bool awaited(const std::byte* row) const;
  void advance(const Sight& sight);
  static void advance_to(std::atomic<std::uint32_t>& clock, std::uint32_t to);
  void see(Partition& partition, const Batch& batch, std::size_t begin, std::size_t end, std::uint32_t use = 0) const;
  void sweep(Partition& partition, std::uint32_t rows) const;
  bool let_in(Partition& partition, const Batch& batch, std::size_t unique, std::uint64_t call) const;
  enum class Start { first_values, zeros };  // of a new row; zeros: the caller calls put_row next
  std::byte* create(Partition& partition, Batch& batch, std::size_t unique, PinnedRows& pinned,
                    Start start = Start::first_values) const;
  bool make_room(Partition& partition, Batch& batch, PinnedRows& pinned) const;
  void prefetch_evictions(Partition& partition, std::uint32_t next) const;
  void let_expire(Partition& partition, std::uint32_t index) const;
  enum class Removal { gone, moved };  // moved: the row goes on in another tier
  void remove(Partition& partition, std::uint32_t index, Removal removal = Removal::gone) const;
  void list_gone(Partition& partition, Key key) const;
  void start_eviction(Batch& batch) const;
  template <typename Make>
  void make_rows(const std::atomic<std::size_t>& made, Make&& make) const;

  // Values of any type: ram_tier_values.cpp
  void widen_into(const std::byte* row, float* to) const;
  float* open_value(std::byte* row) const;
  std::size_t store_value(std::byte* row, const float* value, std::uint32_t version) const;
  void copy_columns(const std::byte* row, const Columns& out, std::size_t at) const;

  std::uint32_t swap_period(std::uint64_t samples) const;  // 0 in a table without SWAP
  float swap_factor(std::uint32_t from, std::uint32_t to) const;
  float swap_decay(std::byte* row, std::uint32_t period) const;
  void decay_state(float* state, float factor, float floor) const;
  // What all rows of one update share.
  struct Update {
    When when;
    UpdateRule rule;
    float adam_scale;
    float adam_step = 0;  // where Adam's bias is corrected by the step
    // Of SWAP: the latest that the table was told. An aggregate that comes late counts in it, whichever period a row
    // stands at.
    std::uint32_t period = 0;
  };
  Update update_of(When when) const;
  void stamp(std::byte* row, When when) const;
  RowTouch touch_of(std::byte* row, float squares, const Update& update) const;
  void apply_rows(Partition& partition, std::span<RowUpdate> rows, const Update& update, Applied& done) const;
  bool add_row(Partition& partition, std::byte* row, const float* value, float* state, When when) const;

  // Put: ram_tier_put.cpp
  struct PutPart;
  void take_clock(const PutPart& part, bool empty);
  std::size_t put_parts(std::span<PutPart> parts, int threads, std::span<const Batch* const> pinned);
  void put_in(Partition& partition, PutPart& part, std::span<const Batch* const> pinned) const;
  void put_row(Partition& partition, std::uint32_t index, const Columns& columns, std::size_t at) const;
  Applied count(const Applied& applied);
  void keep_base(Partition& partition, std::byte* row) const;
  void fill_row(std::byte* row, const FetchedRows& rows, std::size_t at) const;
  void change_of(const Partition& partition, std::uint32_t slot, const ChangeColumns& out, std::size_t at) const;
  void take_change(Partition& partition, std::uint32_t slot, const ChangeColumns& out, std::size_t at) const;
  std::int64_t outside_slot(const Partition& partition, std::uint32_t slot) const;

  // Places in a cache: ram_tier_places.cpp
  CachedState cached_state(const std::byte* row, std::uint64_t staleness, std::uint32_t& clock) const;
  static CachedCounts by_state(Batch& batch, const std::uint8_t* states, const std::uint32_t* clocks,
                               const CachedKeys& out);
  static std::span<const std::uint32_t> ahead_of(const Batch& batch, std::size_t p);
  void take_ahead(Partition& partition, const Batch& batch, ChangeWriter& changes) const;
  void place_absent(Partition& partition, Batch& batch, std::uint32_t use, RowsInUse used, ChangeWriter& changes) const;
  void evict_beyond_quota(Partition& partition, RowsInUse& used, ChangeWriter& changes) const;
  std::uint32_t rows_beyond_quota(const Partition& partition) const;
  void close_up(const ChangeColumns& out, std::size_t from, std::size_t count, std::size_t to) const;

  std::size_t recover(Partition& partition, std::uint32_t& newest, std::uint32_t& period) const;
  void recover_order(Partition& partition) const;
  void verify_order(const Partition& partition, std::size_t live, std::vector<std::string>& faults) const;

  // Cuts: ram_tier_cut.cpp
  void check_cut() const;
  void list_expired(Partition& partition) const;
  void prepare_cut(Partition& partition) const;
  std::size_t cut_some(Partition& partition, std::size_t most, const Columns& out, std::size_t at) const;

  std::uint64_t number_;  // no other table of this process has it
  int process_;
  TableSpec spec_;
  Layout layout_;
  UpdateRule rule_;
  AdamSteps adam_steps_;
  Ticks ticks_;
  bool counts_occurrences_;
  std::unique_ptr<Segment> segment_;
  std::unique_ptr<Arena> arena_ = std::make_unique<Arena>();
  std::vector<std::unique_ptr<Partition>> partitions_;
  mutable std::atomic<std::uint64_t> next_start_{0}, refused_{0}, absent_{0}, unadmitted_{0}, calls_{0};
  std::atomic<std::uint32_t> now_{0};        // the latest tick anyone told
  std::atomic<bool> clock_of_rows_{false};   // rows were put into an empty table, and no call has moved the clock since
  std::atomic<std::uint32_t> period_{0};     // the latest SWAP period anyone told: new rows stand at it
  std::atomic<std::uint32_t> announced_{0};  // batches
  mutable std::mutex cut_mutex_;             // held by every call of a cut, before any partition's
  bool cut_open_ = false, cut_changed_only_ = false, tracks_changes_ = false;
  std::size_t cut_partition_ = 0;  // the one that is exported next
};

}  // namespace hotrow::store
