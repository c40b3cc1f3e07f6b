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

}  // namespace

bool Compiler::Recurrent(const Op& op) {
  constexpr auto f32 = dnnl::memory::data_type::f32;
  const Dims& sequence = type(op.in[0]).dims;
  const int64_t steps = sequence[0], batch = sequence[1], length = sequence[2], units = op.views[0].dims[0];
  const RecurrentKind kind = KindOf(op.algorithm);
  const int gates = native::Recurrent::Gates(kind);
  const auto kernel = std::make_shared<const native::Recurrent>(kind, steps, batch, units, op.backward);

  // Of each gate: weights of the input, weights of the state, and the biases that are added with either.
  std::vector<ConstantPart> of(4 * static_cast<size_t>(gates));
  std::string key = "recurrent " + std::to_string(static_cast<int>(kind));
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
  const auto part = [&of, gates](int which, int gate) -> const ConstantPart& { return of[which * gates + gate]; };
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

  const int threads = collage_num_threads();
  const Tensor inputs = NewTensor(RowMajor({steps, batch, columns}, f32));
  AddWork("recurrent inputs", {Plain(op.in[0]), inputs}, ProductKernel(weights, steps * batch, {}, threads));

  const Tensor all = NewTensor(RowMajor({steps, batch, units}, f32));
  const Tensor cells = NewTensor(RowMajor({batch, units}, f32));
  std::vector<Tensor> tensors = {inputs, states, bias, before(0), before(1), all, cells};
  tensors.push_back(NewTensor(RowMajor({std::max<int64_t>(kernel->Scratch(), 1)}, f32)));
  const auto arguments = [](void* const* data) {
    const auto at = [data](int i) { return static_cast<float*>(data[i]); };
    return native::Recurrent::Arguments{at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)};
  };
  const int pieces = kernel->Pieces(threads);
  if (pieces == 1) {
    AddWork("recurrent steps", tensors,
            {1, [=](void* const* data, int /*piece*/) { kernel->Run(arguments(data)); }});
  }
  for (int64_t step = 0; pieces > 1 && step < steps; ++step) {
    for (int phase = 0; phase < kernel->Phases(); ++phase) {
      AddWork("recurrent step", tensors, {pieces, [=](void* const* data, int piece) {
                                            kernel->Phase(arguments(data), step, phase, piece, pieces);
                                          }});
    }
  }

  // What is wanted of it.
  for (size_t i = 0; i <= op.more.size(); ++i) {
    Op result = op;
    result.more.clear();
    result.out = i == 0 ? op.out : op.more[i - 1];
    if (op.times[i] == Op::kAllTimes || op.times[i] == Op::kCells) {
      Finish(result, 0, op.times[i] == Op::kCells ? cells : all);
      continue;
    }
    const Tensor one = NewTensor(RowMajor({batch, units}, f32));
    AddKernel("recurrent state", {all, one},
              [bytes = batch * units * sizeof(float), time = op.times[i]](void* const* data) {
                std::memcpy(data[1], static_cast<const char*>(data[0]) + time * bytes, bytes);
              });
    Finish(result, 0, one);
  }
  return true;
}

}  // namespace collage::onednn
