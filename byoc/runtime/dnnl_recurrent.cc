// SPDX-License-Identifier: Apache-2.0
//
// Recurrent layers, by a kernel of our own: the inputs of all steps are multiplied with their weights as one
// dense layer, and then goes step by step what needs the step before.
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collage_runtime.h"
#include "dnnl_compiler.h"
#include "native/product.h"
#include "native/recurrent.h"
#include "shared_constants.h"

namespace collage::onednn {
namespace {

RecurrentKind KindOf(dnnl::algorithm algorithm) {
  switch (algorithm) {
    case dnnl::algorithm::vanilla_lstm:
      return RecurrentKind::kLstm;
    case dnnl::algorithm::vanilla_gru:
      return RecurrentKind::kGru;
    case dnnl::algorithm::lbr_gru:
      return RecurrentKind::kGruAfter;
    case dnnl::algorithm::eltwise_tanh:
      return RecurrentKind::kTanh;
    default:
      return RecurrentKind::kRelu;
  }
}

// Numbers of a constant as a view sees them.
struct ConstantPart {
  const float* data = nullptr;
  const View* view = nullptr;
  float operator()(int64_t row, int64_t column) const {
    return data == nullptr ? 0.0F
                           : data[view->offset + row * view->strides[0] +
                                  (view->strides.size() > 1 ? column * view->strides[1] : 0)];
  }
};

// The tensors of one direction, in this order.
constexpr int kArguments = 8, kStates = 5, kCells = 6;

native::Recurrent::Arguments ArgumentsOf(void* const* data) {
  const auto at = [data](int i) { return static_cast<float*>(data[i]); };
  return {at(0), at(1), at(2), at(3), at(4), at(kStates), at(kCells), at(7)};
}

}  // namespace

Compiler::RecurrentDirection Compiler::DirectionOf(const Op& op) {
  constexpr auto f32 = dnnl::memory::data_type::f32;
  const Dims& sequence = type(op.in[0]).dims;
  const int64_t steps = sequence[0], batch = sequence[1], length = sequence[2], units = op.views[0].dims[0];
  const RecurrentKind kind = KindOf(op.algorithm);
  const int gates = native::Recurrent::Gates(kind);
  const auto kernel = std::make_shared<const native::Recurrent>(kind, steps, batch, units, op.backward);

  // Of each gate: weights of the input, weights of the state, and the biases that are added with either.
  std::vector<ConstantPart> of(4 * static_cast<size_t>(gates));
  std::string key = "recurrent " + std::to_string(static_cast<int>(kind)) + ", " + std::to_string(units) +
                    " of " + std::to_string(length) + " ";
  size_t view = 0;
  for (size_t i = 0; i < of.size(); ++i) {
    const int argument = op.parts[2 + i];
    if (argument < 0) {
      key += " none";
      continue;
    }
    const Buffer& buffer = buffers_[Plain(op.in[argument]).buffer];
    of[i] = {static_cast<const float*>(buffer.data), &op.views[view++]};
    key += buffer.made_of + " " + std::to_string(of[i].view->offset);
    for (const int64_t step : of[i].view->strides) key += "," + std::to_string(step);
  }
  const auto part = [&of, gates](int which, int gate) -> const ConstantPart& {
    return of[which * gates + gate];
  };
  // The product of the state with its weights for the new gate is scaled with its bias.
  const bool apart = kind == RecurrentKind::kGruAfter;

  const int64_t columns = kernel->InputColumns();
  const auto weights = Made<PackedWeights>(key + " inputs", [&] {
    std::vector<float> turned(columns * length), biases(columns);
    for (int gate = 0; gate < gates; ++gate) {
      for (int64_t unit = 0; unit < units; ++unit) {
        const int64_t column = kernel->InputColumn(gate, unit);
        for (int64_t i = 0; i < length; ++i) turned[column * length + i] = part(0, gate)(unit, i);
        biases[column] = part(2, gate)(unit, 0) + (apart && gate == 2 ? 0.0F : part(3, gate)(unit, 0));
      }
    }
    auto made = std::make_shared<PackedWeights>(length, std::vector<int64_t>{columns});
    made->Add(turned.data(), 1, length, biases.data());
    made->Share(Shared);
    return made;
  });
  if (last_weights_ != nullptr) last_weights_->next = weights.get();
  last_weights_ = weights;
  const auto constant = [this](const std::string& name, int64_t size,
                               const std::function<void(float* packed)>& pack) {
    return Tensor{RowMajor({size}, f32), MadeBuffer(name, size * sizeof(float), [&](void* packed) {
                    std::memset(packed, 0, size * sizeof(float));
                    pack(static_cast<float*>(packed));
                  })};
  };
  const Tensor states = constant(key + " states", kernel->PackedSize(), [&](float* packed) {
    kernel->Pack([&](int gate, int64_t unit, int64_t from) { return part(1, gate)(unit, from); }, packed);
  });
  const Tensor bias = constant(key + " bias", kernel->BiasSize(), [&](float* packed) {
    for (int64_t unit = 0; apart && unit < units; ++unit) packed[unit] = part(3, 2)(unit, 0);
  });
  const auto before = [&](int i) {
    if (op.parts[i] >= 0) return Plain(op.in[op.parts[i]]);
    return constant("zeros " + std::to_string(batch * units), batch * units, [](float*) {});
  };

  const Tensor inputs = NewTensor(RowMajor({steps, batch, columns}, f32));
  AddWork("recurrent inputs", {Plain(op.in[0]), inputs},
          ProductKernel(weights, steps * batch, {}, collage_num_threads()));
  return {kernel,
          {inputs, states, bias, before(0), before(1), NewTensor(RowMajor({steps, batch, units}, f32)),
           NewTensor(RowMajor({batch, units}, f32)),
           NewTensor(RowMajor({std::max<int64_t>(kernel->Scratch(), 1)}, f32))}};
}

bool Compiler::Recurrent(const Op& op) {
  const int threads = collage_num_threads();
  const RecurrentDirection layer = DirectionOf(op);
  const auto kernel = layer.kernel;
  const int pieces = kernel->Pieces(threads);
  const Op* const other = OtherDirection(op);
  if (other != nullptr && threads > 1 && pieces <= 2) {
    // A thread for each direction: they need not wait for one another in each step.
    const RecurrentDirection back = DirectionOf(*other);
    std::vector<Tensor> tensors = layer.tensors;
    tensors.insert(tensors.end(), back.tensors.begin(), back.tensors.end());
    AddWork("recurrent steps of both directions", tensors,
            {2, [kernel, other = back.kernel](void* const* data, int piece) {
               (piece == 0 ? kernel : other)->Run(ArgumentsOf(data + piece * kArguments));
             }});
    GiveStates(op, layer);
    GiveStates(*other, back);
    ++now_;
    return true;
  }
  if (pieces == 1) {
    AddWork("recurrent steps", layer.tensors,
            {1, [kernel](void* const* data, int /*piece*/) { kernel->Run(ArgumentsOf(data)); }});
  }
  for (int64_t step = 0; pieces > 1 && step < kernel->steps(); ++step) {
    for (int phase = 0; phase < kernel->Phases(); ++phase) {
      AddWork("recurrent step", layer.tensors, {pieces, [=](void* const* data, int piece) {
                                                  kernel->Phase(ArgumentsOf(data), step, phase, piece,
                                                                pieces);
                                                }});
    }
  }
  GiveStates(op, layer);
  return true;
}

const Op* Compiler::OtherDirection(const Op& op) const {
  const size_t next = static_cast<size_t>(now_) + 1;
  if (next >= program_.ops.size()) return nullptr;
  const Op& other = program_.ops[next];
  if (other.kernel != op.kernel || other.in[0] != op.in[0]) return nullptr;
  for (const int value : other.in) {
    if (tensors_[value].empty()) return nullptr;  // it reads what the first one makes
  }
  return &other;
}

void Compiler::GiveStates(const Op& op, const RecurrentDirection& layer) {
  const Tensor &all = layer.tensors[kStates], &cells = layer.tensors[kCells];
  for (size_t i = 0; i <= op.more.size(); ++i) {
    Op result = op;
    result.more.clear();
    result.out = i == 0 ? op.out : op.more[i - 1];
    if (op.times[i] == Op::kAllTimes || op.times[i] == Op::kCells) {
      Finish(result, 0, op.times[i] == Op::kCells ? cells : all);
      continue;
    }
    const Tensor one = NewTensor(cells.desc);
    AddKernel("recurrent state", {all, one},
              [bytes = one.desc.get_size(), time = op.times[i]](void* const* data) {
                std::memcpy(data[1], static_cast<const char*>(data[0]) + time * bytes, bytes);
              });
    Finish(result, 0, one);
  }
}

}  // namespace collage::onednn
