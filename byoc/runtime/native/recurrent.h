// SPDX-License-Identifier: Apache-2.0
//
// The steps of recurrent layers (LSTM, GRU, RNN): what is left of them when the products of all inputs with
// their weights have been made in one go (native/product.h). A step multiplies the states with the weights of
// all gates and makes the next states of the sums before it stores anything: one pass over the weights, which
// are laid out in the order in which they are read and stay in the caches from step to step.
//
// Gates stand in the order input, forget, cell, output (LSTM) and reset, update, new (GRU). Units are hidden
// units; a block is as many of them as a vector has elements, the last one filled up.
#ifndef COLLAGE_NATIVE_RECURRENT_H_
#define COLLAGE_NATIVE_RECURRENT_H_

#include <cstdint>

namespace collage::native {

enum class RecurrentKind {
  kLstm,
  kGru,       // the state is multiplied by the reset gate before its product with the weights
  kGruAfter,  // and behind it
  kTanh,      // RNN, by its function
  kRelu,
};

// One step for some blocks.
struct RecurrentStep {
  int64_t batch = 1, units = 1;
  int64_t begin = 0, end = 1;      // blocks
  const float* inputs = nullptr;   // [batch, blocks, gates, lanes]: products of the inputs, and biases
  const float* weights = nullptr;  // those of the states, packed
  const float* bias = nullptr;     // kGruAfter: [blocks, lanes], beside the state's product for the new gate
  const float* before = nullptr;   // [batch, units]: the states, and those that are made
  float* after = nullptr;
  const float* cells_before = nullptr;  // kLstm: [batch, units]; may lie where cells do
  float* cells = nullptr;
  float *update = nullptr, *reset = nullptr;  // kGru: [batch, units], the gate, and the state times its gate
};

// The loops, for each level of instructions (native/recurrent_loops.h).
struct RecurrentLoops {
  void (*lstm)(const RecurrentStep& step);
  // The first two gates, and then the last one.
  void (*gru_gates)(const RecurrentStep& step);
  void (*gru_new)(const RecurrentStep& step);
  void (*gru_after)(const RecurrentStep& step);
  void (*tanh)(const RecurrentStep& step);
  void (*relu)(const RecurrentStep& step);
};

// One direction of a layer.
class Recurrent {
 public:
  struct Arguments {
    const float* inputs = nullptr;   // [steps, batch, InputColumns()]
    const float* weights = nullptr;  // as Pack makes them
    const float* bias = nullptr;     // kGruAfter: BiasSize() numbers, those of no unit are zeros
    const float *before = nullptr, *cells_before = nullptr;  // [batch, units]; the second is kLstm's
    float* states = nullptr;   // [steps, batch, units]: the state of each step in the order of time
    float* cells = nullptr;    // kLstm: [batch, units], behind the last step
    float* scratch = nullptr;  // Scratch() elements
  };

  // backward: the first step is that of the last time.
  Recurrent(RecurrentKind kind, int64_t steps, int64_t batch, int64_t units, bool backward);

  static int Gates(RecurrentKind kind);

  int64_t steps() const { return steps_; }
  // How many results the product of an input with its weights has, and where those of a gate and a unit stand
  // among them: columns of no unit are filled with zeros.
  int64_t InputColumns() const { return blocks_ * gates_ * lanes_; }
  int64_t InputColumn(int gate, int64_t unit) const;
  int64_t BiasSize() const { return blocks_ * lanes_; }

  // Elements of the packed weights; weight(gate, unit, from) is what the state of `from` is multiplied by.
  int64_t PackedSize() const { return blocks_ * units_ * gates_ * lanes_; }
  template <typename Weight>
  void Pack(const Weight& weight, float* packed) const {
    for (int64_t unit = 0; unit < blocks_ * lanes_; ++unit) {
      for (int gate = 0; gate < gates_; ++gate) {
        for (int64_t from = 0; from < units_; ++from) {
          packed[Place(gate, unit, from)] = unit < units_ ? weight(gate, unit, from) : 0.0F;
        }
      }
    }
  }
  int64_t Scratch() const;

  // In how many pieces a phase of a step is divided among so many threads: 1, and all steps can be done at
  // once (Run). A step has so many phases, each of which all threads must have ended before the next.
  int Pieces(int threads) const;
  int Phases() const { return kind_ == RecurrentKind::kGru ? 2 : 1; }
  void Phase(const Arguments& a, int64_t step, int phase, int piece, int pieces) const;
  void Run(const Arguments& a) const;

 private:
  int64_t Place(int gate, int64_t unit, int64_t from) const;

  const RecurrentKind kind_;
  const int64_t steps_, batch_, units_;
  const bool backward_;
  const int gates_;
  const int64_t lanes_, blocks_;
};

}  // namespace collage::native

#endif  // COLLAGE_NATIVE_RECURRENT_H_
