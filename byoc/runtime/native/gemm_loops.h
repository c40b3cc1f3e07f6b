// SPDX-License-Identifier: Apache-2.0
//
// The tile of native/gemm.h and what is done to it before it is stored, for one level (native/level.h).
#ifndef COLLAGE_NATIVE_GEMM_LOOPS_H_
#define COLLAGE_NATIVE_GEMM_LOOPS_H_

#include <utility>

#include "native/gemm.h"
#include "native/lanes.h"

namespace collage::native {
namespace {

// The rows of a tile by its vectors of columns. A panel of the right side has as many vectors as the widest
// tile.
#if COLLAGE_LANES == 16
constexpr int kTileVectors = 4;
constexpr int kTileRows[kTileVectors] = {14, 14, 9, 6};
#else
constexpr int kTileVectors = 2;
constexpr int kTileRows[kTileVectors] = {6, 6};
#endif

// Posts that need more registers than a tile leaves, to vectors in memory.
__attribute__((noinline)) void ApplyToMemory(const Post& post, Vector* values, int count) {
  const Vector alpha = All(post.alpha), beta = All(post.beta);
  for (int i = 0; i < count; ++i) {
    const Vector x = values[i];
    switch (post.kind) {
      case Post::Kind::kRelu:
        values[i] = x > 0.0F ? x : alpha * x;
        break;
      case Post::Kind::kLinear:
        values[i] = alpha * x + beta;
        break;
      case Post::Kind::kSigmoid:
        values[i] = Sigmoid(x);
        break;
      case Post::Kind::kSilu:
        values[i] = x * Sigmoid(alpha * x);
        break;
      case Post::Kind::kGelu:
        values[i] = x * (0.5F + 0.5F * Erf(x * 0.707106781F));
        break;
      case Post::Kind::kGeluTanh:
        // (1 + tanh(u)) / 2 = sigmoid(2 u)
        values[i] = x * Sigmoid(x * (1.59576912F + 0.0713548163F * x * x));
        break;
      case Post::Kind::kClip:
      case Post::Kind::kHardSwish:
      case Post::Kind::kGrid:
      case Post::Kind::kAdd:
      case Post::Kind::kMultiply:
      case Post::Kind::kRowScale:
        break;
    }
  }
}

// R rows of V vectors plus, or times, an operand, whose first element is at `from`.
template <bool kTimes, int R, int V, bool kWhole>
COLLAGE_ALWAYS void Combine(const float* from, int64_t row, Lanes last, Vector (&sum)[R][V]) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const float* const at = from + r * row + v * kWidth;
      const Vector other = kWhole || v + 1 < V ? Load(at) : LoadLanes(at, last);
      sum[r][v] = kTimes ? sum[r][v] * other : sum[r][v] + other;
    }
  }
}

// One of the posts to R rows of V vectors of results, of which the last one has the given lanes. row and
// column: where the first one is in the operands.
template <int R, int V, bool kWhole>
COLLAGE_ALWAYS void ApplyPost(const Post& post, const Operand* operands, int64_t row, int64_t column,
                              Lanes last, Vector (&sum)[R][V]) {
  if (post.kind == Post::Kind::kAdd || post.kind == Post::Kind::kMultiply) {
    const Operand& operand = operands[post.operand];
    const float* const from = operand.data + row * operand.row + column;
    if (post.kind == Post::Kind::kMultiply) {
      Combine<true, R, V, kWhole>(from, operand.row, last, sum);
    } else {
      Combine<false, R, V, kWhole>(from, operand.row, last, sum);
    }
  } else if (post.kind == Post::Kind::kRowScale) {
    const Operand& operand = operands[post.operand];
    const float* const from = operand.data + row * operand.row;
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Vector factor = All(from[r * operand.row]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[r][v] *= factor;
    }
  } else if (post.kind == Post::Kind::kRelu && post.alpha == 0) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[r][v] = Greater(sum[r][v], Vector{});
    }
  } else if (post.kind == Post::Kind::kClip) {
    const Vector low = All(post.alpha), high = All(post.beta);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[r][v] = Greater(Less(sum[r][v], high), low);
    }
  } else if (post.kind == Post::Kind::kHardSwish) {
    const Vector three = All(3.0F), six = All(6.0F), sixth = All(1.0F / 6);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        sum[r][v] = sum[r][v] * Greater(Less(sum[r][v] + three, six), Vector{}) * sixth;
      }
    }
  } else if (post.kind == Post::Kind::kGrid) {
    const Vector scale = All(post.alpha), least = All(post.beta);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[r][v] = OnGrid(sum[r][v], scale, least);
    }
  } else {
    Vector kept[R * V];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) kept[r * V + v] = sum[r][v];
    }
    ApplyToMemory(post, kept, R * V);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[r][v] = kept[r * V + v];
    }
  }
}

// R rows from row `top` of the work on, and V vectors of columns. The loops over the tile must be unrolled
// whole, or it would not stay in registers. kWhole: all columns are wanted, else those of the last vector
// that `last` says.
template <int R, int V, bool kWhole>
void Tile(const GemmWork& w, int64_t top, Lanes last, const char* ahead, int64_t ahead_step) {
  for (int p = 0; p < w.num_posts; ++p) {
    if (w.posts[p].kind != Post::Kind::kAdd && w.posts[p].kind != Post::Kind::kMultiply) continue;
    const Operand& operand = w.operands[w.posts[p].operand];
    const float* const from = operand.data + (w.row + top) * operand.row + w.column;
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < V; ++v) __builtin_prefetch(from + r * operand.row + v * kWidth, 0, 3);
    }
  }
  Vector sum[R][V];
  if (w.initial == nullptr) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sum[r][v] = Vector{};
    }
  } else if (w.initial_row == 0) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const float* const at = w.initial + v * kWidth;
      const Vector start = kWhole || v + 1 < V ? Load(at) : LoadLanes(at, last);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) sum[r][v] = start;
    }
  } else {
    const float* const from = w.initial + top * w.initial_row;
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) {
        const float* const at = from + r * w.initial_row + v * kWidth;
        sum[r][v] = kWhole || v + 1 < V ? Load(at) : LoadLanes(at, last);
      }
    }
  }
  const int64_t left_row = w.left_row, right_row = w.right_row;
  for (int64_t segment = 0; segment < w.num_segments; ++segment) {
    const float* from = w.left + top * left_row;
    const float* b = w.right;
    if (w.segments != nullptr) {
      from += w.segments[segment].left;
      b += w.segments[segment].right * right_row;
    }
    // An address for every third row: the two after it are one and two steps away, which addressing modes can
    // say.
    constexpr int kAddresses = (R + 2) / 3;
    const float* a[kAddresses];
#pragma GCC unroll 5
    for (int i = 0; i < kAddresses; ++i) a[i] = from + 3 * i * left_row;
    for (int64_t k = w.length; k > 0; --k) {
      __builtin_prefetch(ahead, 0, 3);
      ahead += ahead_step;
      Vector right[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) right[v] = Load(b + v * kWidth);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        Vector one = All(a[r / 3][r % 3 * left_row]);
        COLLAGE_KEEP(one);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sum[r][v] += one * right[v];
      }
      b += right_row;
#pragma GCC unroll 5
      for (int i = 0; i < kAddresses; ++i) {
        ++a[i];
        // Keeps the compiler from making an address of its own for each row.
        COLLAGE_KEEP_ADDRESS(a[i]);
      }
    }
  }
  for (int p = 0; p < w.num_posts; ++p) {
    ApplyPost<R, V, kWhole>(w.posts[p], w.operands, w.row + top, w.column, last, sum);
  }
  const int64_t out_vector = w.out_vector == 0 ? kWidth : w.out_vector;
  float* const to = w.out + top * w.out_row;
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      float* const at = to + r * w.out_row + v * out_vector;
      if (kWhole || v + 1 < V) {
        Store(at, sum[r][v]);
      } else {
        StoreLanes(at, sum[r][v], last);
      }
    }
  }
}

using TileFunction = void (*)(const GemmWork&, int64_t, Lanes, const char*, int64_t);

// The tiles of V vectors, by rows less one.
template <int V, bool kWhole, typename RowsLessOne>
struct TilesOf;
template <int V, bool kWhole, int... kRowsLessOne>
struct TilesOf<V, kWhole, std::integer_sequence<int, kRowsLessOne...>> {
  static constexpr TileFunction kAll[] = {Tile<kRowsLessOne + 1, V, kWhole>...};
};
template <int V, bool kWhole>
constexpr const TileFunction* kTiles =
    TilesOf<V, kWhole, std::make_integer_sequence<int, kTileRows[V - 1]>>::kAll;

// By vectors less one, and whether all columns are wanted.
constexpr const TileFunction* kTilesByVectors[][2] = {
    {kTiles<1, false>, kTiles<1, true>},
    {kTiles<2, false>, kTiles<2, true>},
#if COLLAGE_LANES == 16
    {kTiles<3, false>, kTiles<3, true>},
    {kTiles<4, false>, kTiles<4, true>},
#endif
};

void MultiplyPanel(const GemmWork& w) {
  if (w.rows <= 0 || w.columns <= 0) return;
  const int64_t vectors = DivideUp(w.columns, kWidth), rest = w.columns - (vectors - 1) * kWidth;
  const TileFunction* const tiles = kTilesByVectors[vectors - 1][rest == kWidth ? 1 : 0];
  // As equal tiles as possible: 15 rows are 8 and 7, not 14 and 1.
  const int64_t most = kTileRows[vectors - 1];
  const int64_t count = DivideUp(w.rows, most), least = w.rows / count, more = w.rows % count;
  const int64_t steps = count * w.num_segments * w.length;
  int64_t step = 0, of_tile = 0;  // in bytes
  const char* ahead = reinterpret_cast<const char*>(w.left);
  if (w.ahead != nullptr && steps > 0) {
    ahead = reinterpret_cast<const char*>(w.ahead);
    step = DivideUp(w.ahead_size * static_cast<int64_t>(sizeof(float)), steps);
    of_tile = step * w.num_segments * w.length;
  }
  const Lanes last = FirstLanes(rest);
  for (int64_t i = 0, top = 0; i < count; ++i) {
    const int64_t rows = least + (i < more ? 1 : 0);
    tiles[rows - 1](w, top, last, ahead, step);
    ahead += of_tile;
    top += rows;
  }
}

// Four vectors at a time.
template <bool kWhole>
COLLAGE_ALWAYS void ApplyToVector(const RowsWork& w, int64_t row, int64_t column, Lanes lanes) {
  constexpr int kVectors = kWhole ? 4 : 1;
  Vector values[1][kVectors];
  const float* const from = w.in + row * w.in_row + column;
  float* const to = w.out + row * w.out_row + column;
  for (int v = 0; v < kVectors; ++v) values[0][v] = kWhole ? Load(from + v * kWidth) : LoadLanes(from, lanes);
  for (int p = 0; p < w.num_posts; ++p) {
    ApplyPost<1, kVectors, kWhole>(w.posts[p], w.operands, w.row + row, w.column + column, lanes, values);
  }
  for (int v = 0; v < kVectors; ++v) {
    if (kWhole) {
      Store(to + v * kWidth, values[0][v]);
    } else {
      StoreLanes(to, values[0][v], lanes);
    }
  }
}

void ApplyToRows(const RowsWork& w) {
  for (int64_t row = 0; row < w.rows; ++row) {
    int64_t column = 0;
    for (; column + 4 * kWidth <= w.columns; column += 4 * kWidth) {
      ApplyToVector<true>(w, row, column, FirstLanes(kWidth));
    }
    for (; column < w.columns; column += kWidth) {
      ApplyToVector<false>(w, row, column, FirstLanes(w.columns - column));
    }
  }
}

// A square of numbers, rows to columns: rows that are half a square apart are interleaved, as often as it
// takes to move all bits of the column's number to where those of the row's were.
COLLAGE_ALWAYS void TransposeSquare(const float* from, int64_t row_step, float* to, int64_t to_step) {
  Vector v[kWidth];
  for (int i = 0; i < kWidth; ++i) v[i] = Load(from + i * row_step);
  for (int stage = 1; stage < kWidth; stage *= 2) {
    Vector w[kWidth];
    for (int i = 0; i < kWidth / 2; ++i) {
      w[2 * i] = __builtin_shuffle(v[i], v[i + kWidth / 2], NumbersOf(kLower));
      w[2 * i + 1] = __builtin_shuffle(v[i], v[i + kWidth / 2], NumbersOf(kUpper));
    }
    for (int i = 0; i < kWidth; ++i) v[i] = w[i];
  }
  for (int i = 0; i < kWidth; ++i) Store(to + i * to_step, v[i]);
}

void PackRows(const float* from, int64_t row_step, int64_t column_step, int64_t rows, int64_t columns,
              float* to, int64_t padded) {
  for (int64_t column = 0; column < padded; column += kWidth) {
    const int64_t wanted = columns - column < 0 ? 0 : columns - column;
    int64_t row = 0;
    if (column_step == 1) {
      const Lanes lanes = FirstLanes(wanted);
      for (; row < rows; ++row) {
        Store(to + row * padded + column, LoadLanes(from + row * row_step + column, lanes));
      }
    } else if (row_step == 1 && wanted >= kWidth) {
      for (; row + kWidth <= rows; row += kWidth) {
        TransposeSquare(from + row + column * column_step, column_step, to + row * padded + column, padded);
      }
    }
    for (; row < rows; ++row) {
      for (int i = 0; i < kWidth; ++i) {
        to[row * padded + column + i] = i < wanted ? from[row * row_step + (column + i) * column_step] : 0.0F;
      }
    }
  }
}

constexpr GemmLoops kGemmLoops{kTileRows[kTileVectors - 1], int64_t{kTileVectors} * kWidth, MultiplyPanel,
                               ApplyToRows, PackRows};

}  // namespace
}  // namespace collage::native

#endif  // COLLAGE_NATIVE_GEMM_LOOPS_H_
