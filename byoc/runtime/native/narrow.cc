// SPDX-License-Identifier: Apache-2.0
#include "native/narrow.h"

#include <algorithm>
#include <utility>

#include "native/divide_up.h"
#include "native/workers.h"

namespace collage::native {
namespace {

// How many tiles ahead memory is asked for.
constexpr int64_t kAhead = 2;

// A row of results.
struct Row {
  const NarrowConvolution* shape;
  const NarrowConvolution::Arguments* arguments;
  const float* src;  // of the image
  float* dst;        // of the image's row
  int64_t y;
};

// The results x .. x + kPixels - 1 of a row, of which those from `pixels` on are not wanted. All that they
// read is there, along the row, unless kEdge.
template <int kWidth, int kPixels, int kOutputs, bool kEdge>
COLLAGE_INLINE void Pixels(const Row& row, int64_t x, int64_t pixels) {
  using Vector = typename VectorOf<kWidth>::Type;
  constexpr int kPadded = static_cast<int>(RoundUp(int64_t{kPixels * kOutputs}, kWidth));
  static const float kZeros[kLanes] = {};
  const NarrowConvolution& shape = *row.shape;
  const ChannelBlocks& layout = row.arguments->src_layout;
  const int64_t blocks = DivideUp(shape.in_channels, kLanes), step = shape.stride[1] * layout.pixel;
  // The last row of the window is read for the first time: the next results' part of it is asked for already.
  const int64_t last =
      std::min(row.y * shape.stride[0] - shape.pad_front[0] + (shape.kernel[0] - 1) * shape.dilation[0],
               shape.in_height - 1);
  if (!kEdge && last >= 0) {
    const float* next = row.src + last * layout.row + (x + kPixels * kAhead) * step;
    for (int64_t block = 0; block < blocks; ++block, next += layout.block) {
      for (int p = 0; p < kPixels; ++p) __builtin_prefetch(next + p * step);
    }
  }
  Vector sums[kPadded]{};
  const float* weights = row.arguments->packed;
  for (int64_t ky = 0; ky < shape.kernel[0]; ++ky) {
    const int64_t in_y = row.y * shape.stride[0] - shape.pad_front[0] + ky * shape.dilation[0];
    if (in_y < 0 || in_y >= shape.in_height) {
      weights += shape.kernel[1] * blocks * kLanes * kOutputs;
      continue;
    }
    for (int64_t kx = 0; kx < shape.kernel[1]; ++kx) {
      const int64_t in_x = x * shape.stride[1] - shape.pad_front[1] + kx * shape.dilation[1];
      const float* from = row.src + in_y * layout.row + in_x * layout.pixel;
      for (int64_t block = 0; block < blocks; ++block, from += layout.block) {
        for (int part = 0; part < kLanes; part += kWidth, weights += kWidth * kOutputs) {
          Vector taps[kOutputs];
#pragma GCC unroll 8
          for (int o = 0; o < kOutputs; ++o) taps[o] = VectorOf<kWidth>::At(weights + o * kWidth);
#pragma GCC unroll 16
          for (int p = 0; p < kPixels; ++p) {
            const float* at = from + p * step + part;
            if (kEdge) {
              const int64_t column = in_x + p * shape.stride[1];
              if (p >= pixels || column < 0 || column >= shape.in_width) at = kZeros;
            }
            Vector value = VectorOf<kWidth>::At(at);
            COLLAGE_IN_REGISTER(value);  // read once
#pragma GCC unroll 8
            for (int o = 0; o < kOutputs; ++o) sums[p * kOutputs + o] += value * taps[o];
          }
        }
      }
    }
  }
  float results[kPadded];
  AddUp<kWidth, kPadded>(sums, results);
  const float* const bias = row.arguments->bias;
  const auto& strides = row.arguments->dst_strides;
  for (int p = 0; p < kPixels && p < pixels; ++p) {
    for (int o = 0; o < kOutputs; ++o) {
      row.dst[(x + p) * strides[3] + o * strides[1]] =
          results[p * kOutputs + o] + (bias == nullptr ? 0.0F : bias[o]);
    }
  }
}

// A row, with so many sums in registers.
template <int kWidth, int kSums, int kOutputs>
COLLAGE_INLINE void WholeRow(const Row& row) {
  constexpr int kPixels = kSums / kOutputs > 12 ? 12 : kSums / kOutputs < 1 ? 1 : kSums / kOutputs;
  const NarrowConvolution& shape = *row.shape;
  for (int64_t x = 0; x < shape.out_width; x += kPixels) {
    const int64_t pixels = std::min<int64_t>(kPixels, shape.out_width - x);
    const int64_t first = x * shape.stride[1] - shape.pad_front[1];
    const int64_t last = first + (kPixels - 1) * shape.stride[1] + (shape.kernel[1] - 1) * shape.dilation[1];
    if (pixels < kPixels || first < 0 || last >= shape.in_width) {
      Pixels<kWidth, kPixels, kOutputs, true>(row, x, pixels);
    } else {
      Pixels<kWidth, kPixels, kOutputs, false>(row, x, pixels);
    }
  }
}

using RowFunction = void (*)(const Row&);

// Functions by number of output channels, for one sort of processors.
#define COLLAGE_ROW(attribute, name, width, sums, outputs) \
  attribute void name##outputs(const Row& row) { WholeRow<width, sums, outputs>(row); }
#define COLLAGE_ROWS(attribute, name, width, sums) \
  COLLAGE_ROW(attribute, name, width, sums, 1)     \
  COLLAGE_ROW(attribute, name, width, sums, 2)     \
  COLLAGE_ROW(attribute, name, width, sums, 3)     \
  COLLAGE_ROW(attribute, name, width, sums, 4)     \
  COLLAGE_ROW(attribute, name, width, sums, 5)     \
  COLLAGE_ROW(attribute, name, width, sums, 6)     \
  constexpr RowFunction k##name[kMostNarrow] = {name##1, name##2, name##3, name##4, name##5, name##6};

COLLAGE_ROWS(, Any, 4, 8)
#ifdef COLLAGE_X86
COLLAGE_ROWS(COLLAGE_AVX2, Avx2, 8, 10)
COLLAGE_ROWS(COLLAGE_AVX512, Avx512, 16, 24)
#endif

RowFunction FunctionFor(int64_t outputs) {
#ifdef COLLAGE_X86
  static const InstructionSet best = BestInstructionSet();
  if (best == InstructionSet::kAvx512) return kAvx512[outputs - 1];
  if (best == InstructionSet::kAvx2) return kAvx2[outputs - 1];
#endif
  return kAny[outputs - 1];
}

// How many lanes the function for this processor has.
int64_t Width() {
  const InstructionSet best = BestInstructionSet();
  return best == InstructionSet::kAvx512 ? 16 : best == InstructionSet::kAvx2 ? 8 : 4;
}

}  // namespace

size_t NarrowConvolution::PackedSize() const {
  return static_cast<size_t>(kernel[0] * kernel[1] * RoundUp(in_channels, kLanes) * out_channels);
}

void NarrowConvolution::Pack(const float* weights, const std::vector<int64_t>& strides, float* packed) const {
  const int64_t width = Width();
  for (int64_t ky = 0; ky < kernel[0]; ++ky) {
    for (int64_t kx = 0; kx < kernel[1]; ++kx) {
      for (int64_t part = 0; part < RoundUp(in_channels, kLanes); part += width) {
        for (int64_t o = 0; o < out_channels; ++o) {
          for (int64_t c = part; c < part + width; ++c) {
            *packed++ = c < in_channels
                            ? weights[o * strides[0] + c * strides[1] + ky * strides[2] + kx * strides[3]]
                            : 0.0F;
          }
        }
      }
    }
  }
}

void NarrowConvolution::Run(const Arguments& arguments) const {
  const RowFunction function = FunctionFor(out_channels);
  DivideRange(batch * out_height, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / out_height, y = i % out_height;
      function({this, &arguments, arguments.src + image * arguments.src_layout.batch,
                arguments.dst + image * arguments.dst_strides[0] + y * arguments.dst_strides[2], y});
    }
  });
}

}  // namespace collage::native
