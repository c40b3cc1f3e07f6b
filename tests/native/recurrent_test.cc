// SPDX-License-Identifier: Apache-2.0
//
// Recurrent layers of all kinds, step by step in double as they are defined, and by the kernel: whole, and
// with each phase in pieces.
//
// ctest: levels kernel
#include "native/recurrent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "native/level.h"
#include "sample.h"

namespace collage::native {
namespace {

using Kind = RecurrentKind;

struct Layer {
  Kind kind;
  int64_t steps, batch, units;
  bool backward;
};

// All that a layer reads: inputs and biases by [step][batch][gate][unit], weights by [gate][unit][from].
struct Numbers {
  std::vector<float> inputs, weights, bias, before, cells_before;
};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

std::vector<float> Reference(const Layer& l, const Numbers& n, std::vector<float>* last_cells) {
  const int64_t size = l.batch * l.units, gates = Recurrent::Gates(l.kind);
  std::vector<float> states(static_cast<size_t>(l.steps * size));
  std::vector<double> before(n.before.begin(), n.before.end()),
      cells(n.cells_before.begin(), n.cells_before.end());
  for (int64_t step = 0; step < l.steps; ++step) {
    const int64_t time = l.backward ? l.steps - 1 - step : step;
    std::vector<double> after(before.size());
    for (int64_t b = 0; b < l.batch; ++b) {
      const auto product = [&](int64_t gate, int64_t unit, const std::function<double(int64_t)>& state) {
        double sum = 0;
        for (int64_t from = 0; from < l.units; ++from) {
          sum += double{n.weights[(gate * l.units + unit) * l.units + from]} * state(from);
        }
        return sum;
      };
      const auto plain = [&](int64_t from) { return before[b * l.units + from]; };
      const auto input = [&](int64_t gate, int64_t unit) {
        return double{n.inputs[((time * l.batch + b) * gates + gate) * l.units + unit]};
      };
      const auto gate = [&](int64_t g, int64_t unit) {
        return Sigmoid(input(g, unit) + product(g, unit, plain));
      };
      const auto reset = [&](int64_t from) { return gate(0, from) * plain(from); };
      for (int64_t unit = 0; unit < l.units; ++unit) {
        double& state = after[b * l.units + unit];
        double made = 0;
        switch (l.kind) {
          case Kind::kLstm: {
            double& cell = cells[b * l.units + unit];
            cell = gate(1, unit) * cell + gate(0, unit) * std::tanh(input(2, unit) + product(2, unit, plain));
            state = gate(3, unit) * std::tanh(cell);
            continue;
          }
          case Kind::kGru:
            made = std::tanh(input(2, unit) + product(2, unit, reset));
            break;
          case Kind::kGruAfter:
            made = std::tanh(input(2, unit) + gate(0, unit) * (product(2, unit, plain) + n.bias[unit]));
            break;
          case Kind::kTanh:
            state = std::tanh(input(0, unit) + product(0, unit, plain));
            continue;
          case Kind::kRelu:
            state = std::max(0.0, input(0, unit) + product(0, unit, plain));
            continue;
        }
        state = (1 - gate(1, unit)) * made + gate(1, unit) * plain(unit);
      }
    }
    before = after;
    for (int64_t i = 0; i < size; ++i) states[time * size + i] = static_cast<float>(after[i]);
  }
  last_cells->assign(cells.begin(), cells.end());
  return states;
}

void Compare(const Layer& l, int pieces) {
  const int64_t size = l.batch * l.units, gates = Recurrent::Gates(l.kind);
  const Numbers n{Sample(l.steps * size * gates, 1, 2), Sample(gates * l.units * l.units, 2, 0.3F),
                  Sample(l.units, 3), Sample(size, 4), Sample(size, 5)};
  std::vector<float> last_cells;
  const std::vector<float> wanted = Reference(l, n, &last_cells);

  const Recurrent kernel(l.kind, l.steps, l.batch, l.units, l.backward);
  std::vector<float> inputs(l.steps * l.batch * kernel.InputColumns()), packed(kernel.PackedSize());
  for (int64_t row = 0; row < l.steps * l.batch; ++row) {
    for (int gate = 0; gate < gates; ++gate) {
      for (int64_t unit = 0; unit < l.units; ++unit) {
        inputs[row * kernel.InputColumns() + kernel.InputColumn(gate, unit)] =
            n.inputs[(row * gates + gate) * l.units + unit];
      }
    }
  }
  kernel.Pack([&](int gate, int64_t unit,
                  int64_t from) { return n.weights[(gate * l.units + unit) * l.units + from]; },
              packed.data());
  std::vector<float> bias = n.bias;
  bias.resize(static_cast<size_t>(kernel.BiasSize()));
  std::vector<float> states(wanted.size(), -9), cells(last_cells.size(), -9), scratch(kernel.Scratch());
  Recurrent::Arguments a;
  a.inputs = inputs.data();
  a.weights = packed.data();
  a.bias = bias.data();
  a.before = n.before.data();
  a.cells_before = n.cells_before.data();
  a.states = states.data();
  a.cells = cells.data();
  a.scratch = scratch.data();
  if (pieces == 0) {
    kernel.Run(a);
  } else {
    for (int64_t step = 0; step < l.steps; ++step) {
      for (int phase = 0; phase < kernel.Phases(); ++phase) {
        for (int piece = pieces - 1; piece >= 0; --piece) kernel.Phase(a, step, phase, piece, pieces);
      }
    }
  }
  for (size_t i = 0; i < wanted.size(); ++i) ASSERT_NEAR(states[i], wanted[i], 2e-6) << "state " << i;
  if (l.kind != Kind::kLstm) return;
  for (size_t i = 0; i < last_cells.size(); ++i) ASSERT_NEAR(cells[i], last_cells[i], 4e-6) << "cell " << i;
}

TEST(Recurrent, LayersAreAsTheyAreDefined) {
  for (const Kind kind : {Kind::kLstm, Kind::kGru, Kind::kGruAfter, Kind::kTanh, Kind::kRelu}) {
    for (const int64_t units : {1, 7, 16, 37}) {
      for (const int64_t batch : {1, 3, 6}) {
        for (const bool backward : {false, true}) {
          // Through RELU numbers grow from step to step.
          const Layer layer{kind, kind == Kind::kRelu ? 2 : 5, batch, units, backward};
          for (const int pieces : {0, 1, 2}) {
            SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)) + ", " + std::to_string(units) +
                         " units, " + std::to_string(batch) + " rows, " + std::to_string(pieces) + " pieces" +
                         (backward ? ", backward" : ""));
            Compare(layer, pieces);
          }
        }
      }
    }
  }
}

TEST(Recurrent, SmallLayersAreNotDivided) {
  EXPECT_EQ(Recurrent(Kind::kGru, 9, 1, 32, false).Pieces(8), 1);
  EXPECT_EQ(Recurrent(Kind::kLstm, 9, 1, 1024, false).Pieces(2), 2);
  // A piece has a block at least.
  EXPECT_LE(Recurrent(Kind::kLstm, 9, 4096, 16, false).Pieces(64), 16 / BestLevel().lanes);
}

TEST(Recurrent, SmallNumbersKeepTheirDigits) {
  const Recurrent kernel(Kind::kTanh, 1, 1, 1, false);
  std::vector<float> inputs(kernel.InputColumns()), packed(kernel.PackedSize());
  for (const float x : {1e-30F, -3e-5F, 1e-3F, 0.2499F, 0.2501F, -1.5F, 20.0F}) {
    const float zero = 0;
    float state = 9;
    inputs[0] = x;
    Recurrent::Arguments a;
    a.inputs = inputs.data();
    a.weights = packed.data();
    a.before = &zero;
    a.states = &state;
    kernel.Run(a);
    EXPECT_NEAR(state / std::tanh(double{x}), 1, 5e-7) << x;
  }
}

}  // namespace
}  // namespace collage::native
