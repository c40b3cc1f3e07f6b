// SPDX-License-Identifier: Apache-2.0
#include "native/recurrent.h"

#include <algorithm>

#include "native/divide_up.h"
#include "native/level.h"

namespace collage::native {
namespace {

// Products of a piece, at least: what takes some microseconds. Less is done sooner by one thread than two can
// wait for one another.
constexpr int64_t kRecurrentPiece = 65536;

}  // namespace

Recurrent::Recurrent(RecurrentKind kind, int64_t steps, int64_t batch, int64_t units, bool backward)
    : kind_(kind),
      steps_(steps),
      batch_(batch),
      units_(units),
      backward_(backward),
      gates_(Gates(kind)),
      lanes_(BestLevel().lanes),
      blocks_(DivideUp(units, lanes_)) {}

int Recurrent::Gates(RecurrentKind kind) {
  if (kind == RecurrentKind::kLstm) return 4;
  return kind == RecurrentKind::kGru || kind == RecurrentKind::kGruAfter ? 3 : 1;
}

int64_t Recurrent::InputColumn(int gate, int64_t unit) const {
  return (unit / lanes_ * gates_ + gate) * lanes_ + unit % lanes_;
}

// Block behind block: for each state that is read the gates' vectors. The gates of kGru, which are not made
// at once, do not stand together: those of the first two, and then all of the last.
int64_t Recurrent::Place(int gate, int64_t unit, int64_t from) const {
  int64_t begin = 0, together = gates_;
  if (kind_ == RecurrentKind::kGru) {
    together = gate < 2 ? 2 : 1;
    if (gate == 2) {
      begin = blocks_ * units_ * 2 * lanes_;
      gate = 0;
    }
  }
  return begin + ((unit / lanes_ * units_ + from) * together + gate) * lanes_ + unit % lanes_;
}

int64_t Recurrent::Scratch() const { return kind_ == RecurrentKind::kGru ? 2 * batch_ * units_ : 0; }

int Recurrent::Pieces(int threads) const {
  const int64_t products = gates_ * units_ * units_ * batch_ / Phases();
  return static_cast<int>(
      std::clamp<int64_t>(products / kRecurrentPiece, 1, std::min<int64_t>(threads, blocks_)));
}

void Recurrent::Phase(const Arguments& a, int64_t step, int phase, int piece, int pieces) const {
  const int64_t size = batch_ * units_;
  const auto at = [this](int64_t one) { return backward_ ? steps_ - 1 - one : one; };
  RecurrentStep s;
  s.batch = batch_;
  s.units = units_;
  s.begin = blocks_ * piece / pieces;
  s.end = blocks_ * (piece + 1) / pieces;
  s.inputs = a.inputs + at(step) * batch_ * InputColumns();
  s.weights = a.weights;
  s.bias = a.bias;
  s.before = step > 0 ? a.states + at(step - 1) * size : a.before;
  s.cells_before = step > 0 ? a.cells : a.cells_before;
  s.after = a.states + at(step) * size;
  s.cells = a.cells;
  const RecurrentLoops& loops = BestLevel().recurrent;
  switch (kind_) {
    case RecurrentKind::kLstm:
      return loops.lstm(s);
    case RecurrentKind::kGru:
      s.update = a.scratch;
      s.reset = a.scratch + size;
      if (phase == 0) return loops.gru_gates(s);
      s.weights += blocks_ * units_ * 2 * lanes_;
      return loops.gru_new(s);
    case RecurrentKind::kGruAfter:
      return loops.gru_after(s);
    case RecurrentKind::kTanh:
      return loops.tanh(s);
    case RecurrentKind::kRelu:
      return loops.relu(s);
  }
}

void Recurrent::Run(const Arguments& a) const {
  for (int64_t step = 0; step < steps_; ++step) {
    for (int phase = 0; phase < Phases(); ++phase) Phase(a, step, phase, 0, 1);
  }
}

}  // namespace collage::native
