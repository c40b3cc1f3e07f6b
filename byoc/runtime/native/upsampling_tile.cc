// SPDX-License-Identifier: Apache-2.0
#include "native/upsampling_tile.h"

#include <stdexcept>
#include <string>

namespace collage::native {
namespace {

using Term = UpsampledConvolutionKernel::Term;

// The sums of a tile: so many pixels by so many blocks of channels, in registers.
template <int kPixels, int kBlocks, int kWidth>
struct Sums {
  using Vector = typename VectorOf<kWidth>::Type;
  static constexpr int kParts = kBlocks * static_cast<int>(kLanes) / kWidth;  // of a pixel

  Vector of[kPixels][kParts];

  static COLLAGE_INLINE const Vector& At(const float* from) { return VectorOf<kWidth>::At(from); }
  static COLLAGE_INLINE Vector& At(float* to) { return VectorOf<kWidth>::At(to); }

  // Calls body(pixel, part) for all, written out.
  template <typename Body>
  static COLLAGE_INLINE void ForEach(const Body& body) {
#pragma GCC unroll 14
    for (int pixel = 0; pixel < kPixels; ++pixel) {
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) body(pixel, part);
    }
  }

  COLLAGE_INLINE void Fill(const float* bias) {
    ForEach([&](int p, int v) __attribute__((always_inline)) {
      of[p][v] = bias == nullptr ? Vector{} : At(bias + v * kWidth);
    });
  }
  COLLAGE_INLINE void Load(const float* from) {
    ForEach([&](int p, int v)
                __attribute__((always_inline)) { of[p][v] = At(from + (p * kParts + v) * kWidth); });
  }
  COLLAGE_INLINE void Add(const float* from) {
    ForEach([&](int p, int v)
                __attribute__((always_inline)) { of[p][v] += At(from + (p * kParts + v) * kWidth); });
  }
  COLLAGE_INLINE void Store(float* to) const {
    ForEach([&](int p, int v)
                __attribute__((always_inline)) { At(to + (p * kParts + v) * kWidth) = of[p][v]; });
  }

  // Adds products of matrices.
  COLLAGE_INLINE void Multiply(const UpsampledTile& t, const std::vector<Term>& terms) {
    const int64_t rows = t.in_blocks * kLanes;
    for (const Term& term : terms) {
      const float* panel = t.panels + term.panel * rows * kParts * kWidth;
      const float* operand = t.operands + term.operand;
      for (int64_t block = 0; block < t.in_blocks; ++block, operand += t.operand_block) {
        for (int lane = 0; lane < kLanes; ++lane, panel += kParts * kWidth) {
          Vector weights[kParts];
#pragma GCC unroll 4
          for (int v = 0; v < kParts; ++v) weights[v] = At(panel + v * kWidth);
          ForEach([&](int p, int v) __attribute__((always_inline)) {
            of[p][v] += operand[p * kLanes + lane] * weights[v];
          });
        }
      }
    }
  }

  // Stores the results of two phases.
  COLLAGE_INLINE void Emit(const UpsampledTile& t, int64_t row_phase, int64_t column_phase) const {
    constexpr int kPerBlock = static_cast<int>(kLanes) / kWidth;
    const int64_t row = t.row + row_phase;
    if (row < 0 || row >= t.rows) return;
    float* const to = t.dst + row * t.dst_row;
    ForEach([&](int p, int v) __attribute__((always_inline)) {
      const int64_t column = t.column + column_phase + p * t.column_scale;
      if (p >= t.pixels || column < 0 || column >= t.columns) return;
      Vector value = of[p][v];
      if (t.clamp != nullptr) {
        const bool relu = t.clamp->kind == Post::Kind::kRelu;
        const Vector low = (relu ? 0 : t.clamp->alpha) - Vector{}, high = t.clamp->beta - Vector{};
        if (!relu) value = value < high ? value : high;
        value = value > low ? value : low;
      }
      At(to + column * t.dst_pixel + v / kPerBlock * t.dst_block + v % kPerBlock * kWidth) = value;
    });
  }
};

template <int kPixels, int kBlocks, int kWidth>
COLLAGE_INLINE void Tile(const UpsampledTile& t) {
  constexpr int64_t kSize = int64_t{kPixels} * kBlocks * kLanes;
  Sums<kPixels, kBlocks, kWidth> sums;
  float* const shared = t.kept;
  float* const base = t.kept + kSize;  // by column phase, what all row phases have in common
  bool first = true;
  for (const auto& group : *t.groups) {
    sums.Fill(first ? t.bias : nullptr);
    sums.Multiply(t, group.shared);
    sums.Store(shared);
    for (int64_t q = 0; q < t.column_scale; ++q) {
      sums.Load(shared);
      sums.Multiply(t, group.by_column[q]);
      if (first) {
        sums.Store(base + q * kSize);
      } else {
        sums.Add(base + q * kSize);
        sums.Emit(t, group.phase, q);
      }
    }
    first = false;
  }
  // Rows of a phase for which no boundary matters.
  uint64_t done = 0;
  for (const auto& group : *t.groups) done |= group.phase < 0 ? 0 : uint64_t{1} << group.phase;
  for (int64_t r = 0; r < t.row_scale; ++r) {
    if ((done >> r & 1) != 0) continue;
    for (int64_t q = 0; q < t.column_scale; ++q) {
      sums.Load(base + q * kSize);
      sums.Emit(t, r, q);
    }
  }
}

template <int kWidth>
COLLAGE_INLINE void Operands(const OperandRow& row, float* values, float* differences) {
  using Vector = typename VectorOf<kWidth>::Type;
  for (int part = 0; part < kLanes; part += kWidth) {
    Vector last{};
    for (int64_t x = row.begin - 1; x < row.end; ++x) {
      Vector value{};
      if (x >= 0 && x < row.columns) {
        const float* const at = row.pixels + x * row.pixel + part;
        if (row.here) value = VectorOf<kWidth>::At(at);
        if (row.before) value -= VectorOf<kWidth>::At(at - row.row);
      }
      if (x >= row.begin) {
        const int64_t to = (x - row.begin) * kLanes + part;
        VectorOf<kWidth>::At(values + to) = value;
        VectorOf<kWidth>::At(differences + to) = value - last;
      }
      last = value;
    }
  }
}

// A function of tiles of so many pixels, by the number of blocks.
struct TileSize {
  int64_t pixels;
  UpsampledTileFunction by_blocks[kTileBlocks];
};

// What is compiled for one sort of processors: tiles of ascending size, and the function that makes operands.
struct Compiled {
  std::vector<TileSize> sizes;
  void (*operands)(const OperandRow&, float*, float*);
};

#define COLLAGE_TILE(attribute, name, pixels, width)                                      \
  attribute void name##pixels##By1(const UpsampledTile& t) { Tile<pixels, 1, width>(t); } \
  attribute void name##pixels##By2(const UpsampledTile& t) { Tile<pixels, 2, width>(t); }
#define COLLAGE_SIZE(name, pixels)                   \
  {                                                  \
    pixels, { name##pixels##By1, name##pixels##By2 } \
  }
#define COLLAGE_OPERANDS(attribute, name, width)                                            \
  attribute void name##Operands(const OperandRow& row, float* values, float* differences) { \
    Operands<width>(row, values, differences);                                              \
  }

COLLAGE_TILE(, Any, 2, 4)
COLLAGE_OPERANDS(, Any, 4)

#ifdef COLLAGE_X86
COLLAGE_TILE(COLLAGE_AVX2, Avx2, 3, 8)
COLLAGE_OPERANDS(COLLAGE_AVX2, Avx2, 8)

// Not one for each number of pixels: they are large.
COLLAGE_TILE(COLLAGE_AVX512, Avx512, 2, 16)
COLLAGE_TILE(COLLAGE_AVX512, Avx512, 4, 16)
COLLAGE_TILE(COLLAGE_AVX512, Avx512, 6, 16)
COLLAGE_TILE(COLLAGE_AVX512, Avx512, 8, 16)
COLLAGE_TILE(COLLAGE_AVX512, Avx512, 10, 16)
COLLAGE_TILE(COLLAGE_AVX512, Avx512, 12, 16)
COLLAGE_TILE(COLLAGE_AVX512, Avx512, 13, 16)
COLLAGE_TILE(COLLAGE_AVX512, Avx512, 14, 16)
COLLAGE_OPERANDS(COLLAGE_AVX512, Avx512, 16)
#endif

const Compiled& Best() {
  static const Compiled* const best = [] {
#ifdef COLLAGE_X86
    const InstructionSet best = BestInstructionSet();
    if (best == InstructionSet::kAvx512) {
      return new Compiled{{COLLAGE_SIZE(Avx512, 2), COLLAGE_SIZE(Avx512, 4), COLLAGE_SIZE(Avx512, 6),
                           COLLAGE_SIZE(Avx512, 8), COLLAGE_SIZE(Avx512, 10), COLLAGE_SIZE(Avx512, 12),
                           COLLAGE_SIZE(Avx512, 13), COLLAGE_SIZE(Avx512, 14)},
                          Avx512Operands};
    }
    if (best == InstructionSet::kAvx2) return new Compiled{{COLLAGE_SIZE(Avx2, 3)}, Avx2Operands};
#endif
    return new Compiled{{COLLAGE_SIZE(Any, 2)}, AnyOperands};
  }();
  return *best;
}

}  // namespace

void MakeOperands(const OperandRow& row, float* values, float* differences) {
  Best().operands(row, values, differences);
}

int64_t MostTilePixels() { return Best().sizes.back().pixels; }

UpsampledTileFunction UpsampledTileOf(int64_t pixels, int64_t blocks) {
  for (const TileSize& size : Best().sizes) {
    if (pixels <= size.pixels && blocks >= 1 && blocks <= kTileBlocks) return size.by_blocks[blocks - 1];
  }
  throw std::runtime_error("there is no kernel for " + std::to_string(pixels) + " pixels by " +
                           std::to_string(blocks) + " blocks of channels");
}

}  // namespace collage::native
