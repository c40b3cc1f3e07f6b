// SPDX-License-Identifier: Apache-2.0
//
// Between padded batches of sequences and their packed tokens (dnnl_ragged.h).
#include "collage_runtime.h"
#include "dnnl_compiler.h"
#include "native/ragged.h"

namespace collage::onednn {

bool Compiler::Tokens(const Op& op) {
  const Tensor from = Plain(op.in[0]);
  const Dims& dims = type(op.out).dims;
  const Desc plain = RowMajor(dims, type(op.out).dtype);
  const int threads = collage_num_threads();
  if (op.kind == "gather_tokens") {
    // Padded, it is the same tensor.
    if (!program_.IsPacked(op.out)) return Define(op.out, {plain, from.buffer}), true;
    const int64_t packed = Elements({dims.begin(), dims.begin() + program_.packed.axes.at(op.out)});
    const Tensor to = NewTensor(plain);
    AddWork("gather tokens", {from, to},
            GatherTokens(program_.tokens, Elements(dims) / packed, packed,
                         program_.packed.turned.count(op.out) > 0, threads));
    Define(op.out, to);
    return true;
  }
  // Where nothing is packed and nobody needs what was there, zeros are written over it.
  const bool over = !program_.IsPacked(op.in[0]) && Overwritable(from);
  const Tensor to = over ? Tensor{plain, from.buffer} : NewTensor(plain), valid = tensor(op.in[1]);
  const int64_t rows = Elements(valid.desc.dims()), width = Elements(dims) / rows;
  if (program_.IsPacked(op.in[0])) {
    AddWork("scatter tokens", {from, to}, ScatterTokens(program_.tokens, width, threads));
  } else {
    AddWork("clear padding", {from, valid, to}, ClearPadding(rows, width, threads));
  }
  Define(op.out, to);
  return true;
}

}  // namespace collage::onednn
