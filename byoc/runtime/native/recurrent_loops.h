// SPDX-License-Identifier: Apache-2.0
//
// The loops of native/recurrent.h for one level (native/level.h).
#ifndef COLLAGE_NATIVE_RECURRENT_LOOPS_H_
#define COLLAGE_NATIVE_RECURRENT_LOOPS_H_

#include "native/lanes.h"
#include "native/recurrent.h"

namespace collage::native {
namespace {

// Rows of a batch that are multiplied with a vector of weights when it has been loaded: as many sums as there
// are registers for.
constexpr int kRowsTogether = kWidth == 16 ? 4 : 2;

// By the sigmoid, but for small numbers, of which nothing would be left of the difference: a series.
COLLAGE_ALWAYS Vector Tanh(Vector x) {
  const Vector square = x * x;
  const Vector series =
      x + x * square *
              (-0.333333333F + square * (0.133333333F + square * (-0.0539682540F + square * 0.0218694885F)));
  return (x < 0 ? -x : x) < 0.25F ? series : 2.0F * Sigmoid(2.0F * x) - 1.0F;
}

// The products of the states of so many rows with the weights of one block. A sum that waits for the one
// before takes four cycles, in which eight could be begun: where there are few, every other state adds to
// another one.
template <int kGates, int kRows>
COLLAGE_ALWAYS void StateProducts(const float* weights, const float* states, int64_t units,
                                  Vector (&sums)[kRows][kGates]) {
  constexpr int kAtOnce = (8 + kRows * kGates - 1) / (kRows * kGates);
  Vector parts[kAtOnce][kRows][kGates] = {};
  int64_t from = 0;
  for (; from + kAtOnce <= units; from += kAtOnce) {
#pragma GCC unroll 8
    for (int i = 0; i < kAtOnce; ++i) {
#pragma GCC unroll 4
      for (int g = 0; g < kGates; ++g) {
        const Vector weight = Load(weights + ((from + i) * kGates + g) * kWidth);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) parts[i][r][g] += weight * All(states[r * units + from + i]);
      }
    }
  }
  for (; from < units; ++from) {
#pragma GCC unroll 4
    for (int g = 0; g < kGates; ++g) {
      const Vector weight = Load(weights + (from * kGates + g) * kWidth);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) parts[0][r][g] += weight * All(states[r * units + from]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int g = 0; g < kGates; ++g) {
      sums[r][g] = parts[0][r][g];
#pragma GCC unroll 8
      for (int i = 1; i < kAtOnce; ++i) sums[r][g] += parts[i][r][g];
    }
  }
}

// What a row's block is made of: gates' inputs, and where its states are.
struct RecurrentPlace {
  const float* inputs;
  int64_t state;  // in [batch, units]
  Lanes lanes;
  int64_t block;
};

// Has finish(place, sums) make the states of each row and block of the products of `states` with weights of
// so many gates.
template <int kGates, int kRows, typename Finish>
COLLAGE_ALWAYS void RowsOfBlock(const RecurrentStep& s, int gates, const float* states, int64_t row,
                                int64_t block, const Finish& finish) {
  Vector sums[kRows][kGates];
  StateProducts<kGates, kRows>(s.weights + block * s.units * kGates * kWidth, states + row * s.units, s.units,
                               sums);
  const int64_t blocks = (s.units + kWidth - 1) / kWidth;
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    finish(RecurrentPlace{s.inputs + ((row + r) * blocks + block) * gates * kWidth,
                          (row + r) * s.units + block * kWidth, FirstLanes(s.units - block * kWidth), block},
           sums[r]);
  }
}

template <int kGates, typename Finish>
COLLAGE_ALWAYS void ForBlocks(const RecurrentStep& s, int gates, const float* states, const Finish& finish) {
  for (int64_t block = s.begin; block < s.end; ++block) {
    int64_t row = 0;
    for (; row + kRowsTogether <= s.batch; row += kRowsTogether) {
      RowsOfBlock<kGates, kRowsTogether>(s, gates, states, row, block, finish);
    }
    for (; row < s.batch; ++row) RowsOfBlock<kGates, 1>(s, gates, states, row, block, finish);
  }
}

void LstmStep(const RecurrentStep& step) {
  const RecurrentStep s = step;  // what a store may lie over is not read again
  ForBlocks<4>(s, 4, s.before, [&](const RecurrentPlace& at, const Vector(&sums)[4]) {
    const auto gate = [&](int g)
                          __attribute__((always_inline)) { return Load(at.inputs + g * kWidth) + sums[g]; };
    const Vector cells =
        Sigmoid(gate(1)) * LoadLanes(s.cells_before + at.state, at.lanes) + Sigmoid(gate(0)) * Tanh(gate(2));
    StoreLanes(s.cells + at.state, cells, at.lanes);
    StoreLanes(s.after + at.state, Sigmoid(gate(3)) * Tanh(cells), at.lanes);
  });
}

void GruGates(const RecurrentStep& step) {
  const RecurrentStep s = step;
  ForBlocks<2>(s, 3, s.before, [&](const RecurrentPlace& at, const Vector(&sums)[2]) {
    const Vector state = LoadLanes(s.before + at.state, at.lanes);
    StoreLanes(s.reset + at.state, Sigmoid(Load(at.inputs) + sums[0]) * state, at.lanes);
    StoreLanes(s.update + at.state, Sigmoid(Load(at.inputs + kWidth) + sums[1]), at.lanes);
  });
}

void GruNew(const RecurrentStep& step) {
  const RecurrentStep s = step;
  ForBlocks<1>(s, 3, s.reset, [&](const RecurrentPlace& at, const Vector(&sums)[1]) {
    const Vector made = Tanh(Load(at.inputs + 2 * kWidth) + sums[0]);
    const Vector state = LoadLanes(s.before + at.state, at.lanes);
    StoreLanes(s.after + at.state, made + LoadLanes(s.update + at.state, at.lanes) * (state - made),
               at.lanes);
  });
}

void GruAfter(const RecurrentStep& step) {
  const RecurrentStep s = step;
  ForBlocks<3>(s, 3, s.before, [&](const RecurrentPlace& at, const Vector(&sums)[3]) {
    const Vector reset = Sigmoid(Load(at.inputs) + sums[0]);
    const Vector update = Sigmoid(Load(at.inputs + kWidth) + sums[1]);
    const Vector of_state = sums[2] + Load(s.bias + at.block * kWidth);
    const Vector made = Tanh(Load(at.inputs + 2 * kWidth) + reset * of_state);
    const Vector state = LoadLanes(s.before + at.state, at.lanes);
    StoreLanes(s.after + at.state, made + update * (state - made), at.lanes);
  });
}

void TanhStep(const RecurrentStep& step) {
  const RecurrentStep s = step;
  ForBlocks<1>(s, 1, s.before, [&](const RecurrentPlace& at, const Vector(&sums)[1]) {
    StoreLanes(s.after + at.state, Tanh(Load(at.inputs) + sums[0]), at.lanes);
  });
}

void ReluStep(const RecurrentStep& step) {
  const RecurrentStep s = step;
  ForBlocks<1>(s, 1, s.before, [&](const RecurrentPlace& at, const Vector(&sums)[1]) {
    StoreLanes(s.after + at.state, Greater(Load(at.inputs) + sums[0], Vector{}), at.lanes);
  });
}

constexpr RecurrentLoops kRecurrentLoops{LstmStep, GruGates, GruNew, GruAfter, TanhStep, ReluStep};

}  // namespace
}  // namespace collage::native

#endif  // COLLAGE_NATIVE_RECURRENT_LOOPS_H_
