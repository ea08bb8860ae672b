// What calls of a RAM tier are given and what they return: settings, columns, counts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "store/layout.h"
#include "store/life.h"
#include "store/optimizer.h"
#include "store/rows.h"
#include "store/slab.h"

namespace hotrow::store {

struct TableSpec {
  std::size_t dim;
  RowType type;
  Optimizer optimizer;
  FirstValues first_values;
  LifeSpec life;
  bool clock, last_seen;
  int partitions_log2;
  bool keeps_base = false;  // of a cache: rows keep what they were before their first change
};

Layout layout_of(const TableSpec& spec);

// The slot of a key that was looked up and not let in.
constexpr std::uint32_t kTurnedAway = kNoRow - 1;

// Whose rows of a caller's array: one for every key of the batch, or one for every unique key.
enum class Per { key, unique };

struct When {
  std::uint64_t step;     // dense step being applied, from 0
  std::uint64_t samples;  // up to and including this aggregate
  double lr_scale = 1;    // what a schedule multiplies the learning rate by
};

// Which unique keys of a batch a call works on.
struct Selection {
  const std::uint8_t* only = nullptr;  // one flag per unique key, or null: all
  // A row counts where the batch's last lookup found it, and only there: rows that were made since are absent. Without
  // a lookup it means nothing.
  bool as_found = false;
};

// In rows, each counted once however often its key stands in the batch.
struct Applied {
  std::size_t rows = 0;
  std::size_t refused = 0;     // the gradient was not finite
  std::size_t absent = 0;      // no such row
  std::size_t weightless = 0;  // every weight of the key was 0
  std::size_t unadmitted = 0;  // the lookup had turned the key away

  Applied& operator+=(const Applied& more) {
    rows += more.rows;
    refused += more.refused;
    absent += more.absent;
    weightless += more.weightless;
    unadmitted += more.unadmitted;
    return *this;
  }
};

// What happened to the rows of a table, or of one partition.
struct Counts {
  std::uint64_t created = 0, erased = 0, evicted = 0, expired = 0;
  std::uint64_t turned_away = 0;  // keys, once per lookup
  std::uint64_t saturated = 0;    // elements too large for a 16-bit row

  Counts& operator+=(const Counts& more);
};

struct Stats {
  std::size_t rows = 0, slab_bytes = 0, index_bytes = 0, admission_bytes = 0, splits = 0;
  std::size_t bytes = 0;  // all memory handed out, with room for growth
  Counts counts;
  std::uint64_t refused = 0, absent = 0, unadmitted = 0;
};

// What a lookup says of the rows it finds. Reading ahead is not seeing.
struct Sight {
  bool seen = true;
  std::optional<std::uint64_t> samples;  // trained so far; none: the call counts as one tick
};

// What a cache knows of a row before a request.
enum class CachedState : std::uint8_t {
  absent,
  awaited,  // an earlier request fetches it
  valid,    // as far as the worker knows: the server checks its clock
  ahead,    // too many own updates: it is written back and fetched
};

// What `find_places` found: all keys of the batch by their state, in this order, each state in the order of the batch.
struct CachedKeys {
  Key* keys;               // valid ones, absent ones, ahead ones, awaited ones
  std::uint32_t* clocks;   // current ones of rows that are valid or ahead
  std::uint32_t* uniques;  // their numbers in the batch
};

struct CachedCounts {
  std::size_t valid = 0, absent = 0, ahead = 0, awaited = 0;
  std::size_t beyond = 0;  // rows that earlier batches have left beyond the capacity
};

struct MadePlaces {
  std::size_t changes = 0;  // that were written
  std::size_t beyond = 0;   // rows beyond the capacity: batches in flight use them
};

// Changes of rows since they were fetched, as columns; `changed` (null: all are) tells which keys have one.
struct ChangeColumns {
  Key* keys = nullptr;
  float *values, *state;
  std::uint32_t *clocks, *updates, *periods;
  bool* changed = nullptr;
  std::size_t rows = 0;
  std::int64_t* slots = nullptr;  // where the rows were, in the numbers of `place_slots`
};

// Rows of the server. Without SWAP periods is null.
struct FetchedRows {
  const float *values, *state;
  const std::uint32_t *clocks, *periods;
};

// What a cut holds.
struct CutFacts {
  std::size_t rows = 0;          // of the table, expired ones that are not removed yet among them
  std::size_t changed_rows = 0;  // to be exported, places in the order of eviction left aside
  std::uint64_t samples = 0;     // the table's clock
};

// What an attach found.
struct Attached {
  std::size_t rows = 0;
  std::size_t dropped = 0;  // rows that could not be the table's: a key twice, or in a partition not its own
};

// Whole rows laid out as columns, for export and put. A null column is skipped.
struct Columns {
  Key* keys = nullptr;
  float* values = nullptr;
  float* state = nullptr;
  std::array<std::uint32_t*, kFields> fields = {};
};

// So many rows with their keys, to be put.
struct RowsPart {
  Columns columns;
  std::size_t rows = 0;
};

// What a table knows about time, beside its rows.
struct TableClock {
  std::uint32_t tick, period;  // the latest that anyone told
  bool of_rows;                // rows that were put have set them
};

}  // namespace hotrow::store
