// Vector loops of pooling: a block of columns is held in registers while the positions of a bag pass by.
#include "store/pool.h"

#include "store/isa/width.h"

namespace hotrow::store::HOTROW_ISA {
namespace {

constexpr std::int64_t kAhead = 8;  // positions between the prefetch of a row and its use

// Neighbouring floats of a row: as many as the processor takes at once, or as the block has.
template <int size>
struct Vector {
  static constexpr int width = size < kWidth ? size : kWidth;
  static constexpr int parts = size / width;
  typedef float Part __attribute__((vector_size(width * sizeof(float))));
  static_assert(sizeof(Part) == width * sizeof(float));

  static Part load(const float* from) {
    Part part;
    __builtin_memcpy(&part, from, sizeof part);
    return part;
  }
  static void store(float* to, Part part) { __builtin_memcpy(to, &part, sizeof part); }
};

template <int size>
struct Columns : Vector<size> {
  using Vector<size>::width, Vector<size>::parts, Vector<size>::load;
  using typename Vector<size>::Part;

  const float* rows;  // at the first of these columns
  std::size_t dim;
  const std::uint32_t* index;
  const std::int64_t* offsets;
  const float* weights;
  std::int64_t positions_end;  // what lies beyond is another thread's, or does not exist

  const float* row(std::int64_t position) const { return rows + index[position] * dim; }

  template <bool weighted>
  void bag(std::int64_t begin, std::int64_t end, bool mean, float* out) const {
    Part total[parts] = {};
    for (std::int64_t at = begin; at < end; ++at) {
      if (at + kAhead < positions_end)
        for (int column = 0; column < size; column += 16) __builtin_prefetch(row(at + kAhead) + column);
      const float* const value = row(at);
      for (int part = 0; part < parts; ++part) {
        const Part here = load(value + part * width);
        total[part] += weighted ? here * weights[at] : here;
      }
    }
    const auto length = static_cast<float>(end - begin);
    for (int part = 0; part < parts; ++part)
      this->store(out + part * width, mean && length > 1 ? total[part] / length : total[part]);
  }

  void pool(bool mean, std::size_t begin, std::size_t end, float* out) const {
    for (std::size_t at = begin; at < end; ++at)
      if (weights != nullptr)
        bag<true>(offsets[at], offsets[at + 1], mean, out + at * dim);
      else
        bag<false>(offsets[at], offsets[at + 1], mean, out + at * dim);
  }
};

void sum(const float* rows, std::size_t dim, const std::uint32_t* index, const std::int64_t* offsets,
         const float* weights, bool mean, std::size_t begin, std::size_t end, float* out) {
  const std::int64_t positions_end = offsets[end];
  std::size_t column = 0;
  const auto pool = [&]<int size>(Columns<size> columns) {
    columns = {{}, rows + column, dim, index, offsets, weights, positions_end};
    columns.pool(mean, begin, end, out + column);
    column += size;
  };
  while (column + 64 <= dim) pool(Columns<64>{});
  while (column + 16 <= dim) pool(Columns<16>{});
  while (column + 8 <= dim) pool(Columns<8>{});
  while (column + 4 <= dim) pool(Columns<4>{});
  while (column < dim) pool(Columns<1>{});
}

// Sixteen running sums whatever the instruction set, folded in halves at the end: the same bits everywhere.
float dot_rows(const float* left, const float* right, std::size_t dim) {
  using V = Vector<16>;
  typename V::Part total[V::parts] = {};
  std::size_t column = 0;
  for (; column + 16 <= dim; column += 16)
    for (std::size_t part = 0; part < V::parts; ++part)
      total[part] += V::load(left + column + part * V::width) * V::load(right + column + part * V::width);
  float lanes[16];
  for (std::size_t part = 0; part < V::parts; ++part) V::store(lanes + part * V::width, total[part]);
  for (int lane = 0; column < dim; ++lane, ++column) lanes[lane] += left[column] * right[column];
  for (int half = 8; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

void dot(const float* grad_out, const float* rows, std::size_t dim, const std::uint32_t* index,
         const std::int64_t* offsets, std::size_t begin, std::size_t end, float* out) {
  for (std::size_t bag = begin; bag < end; ++bag)
    for (std::int64_t at = offsets[bag]; at < offsets[bag + 1]; ++at) {
      if (at + kAhead < offsets[end])
        for (std::size_t line = 0; line < dim; line += 16) __builtin_prefetch(rows + index[at + kAhead] * dim + line);
      out[at] = dot_rows(grad_out + bag * dim, rows + index[at] * dim, dim);
    }
}

}  // namespace

extern const PoolKernels pool_kernels_table = {.sum = sum, .dot = dot};

}  // namespace hotrow::store::HOTROW_ISA
