// SPDX-License-Identifier: Apache-2.0
//
// Operators that compute in bfloat16, and what lies between them. What comes into a region and goes out of it
// is float32, and so is what anybody else reads; a value that only such operators read is bfloat16 where it
// lies.
#include <algorithm>

#include "dnnl_compiler.h"
#include "instruction_set.h"

namespace collage::onednn {
namespace {

using dnnl::memory;

bool ProcessorHasBf16() { return AllowedInstructionSet() >= InstructionSet::kAvx512Bf16; }

}  // namespace

memory::data_type Compiler::ComputedIn(const Op& op) const {
  // The data's own type may be bfloat16 already, which says nothing of an operator that is not.
  return op.bf16 && ProcessorHasBf16() ? memory::data_type::bf16 : program_.values[op.in[0]].dtype;
}

bool Compiler::ReadsNarrowly(const Op& op, int value) const {
  if (!op.bf16)
    return std::find(op.in.begin(), op.in.end(), value) == op.in.end() &&
           std::none_of(op.post.begin(), op.post.end(),
                        [value](const PostOp& post) { return post.operand == value; });
  // The weights and the bias of a convolution are asked for as they are in the program.
  for (size_t i = 1; i < op.in.size(); ++i) {
    if (op.in[i] == value) return false;
  }
  // What our kernel adds is float32.
  return std::all_of(op.post.begin(), op.post.end(), [&](const PostOp& post) {
    return post.operand != value ||
           (!op.InPairs() && program_.values[value].dims == program_.values[op.out].dims);
  });
}

void Compiler::NarrowValues() {
  if (!ProcessorHasBf16()) return;
  for (const Op& op : program_.ops) {
    if (!op.bf16 ||
        std::find(program_.outputs.begin(), program_.outputs.end(), op.out) != program_.outputs.end()) {
      continue;
    }
    const bool narrow = std::all_of(program_.ops.begin(), program_.ops.end(),
                                    [&](const Op& reader) { return ReadsNarrowly(reader, op.out); });
    if (narrow) types_[op.out].dtype = memory::data_type::bf16;
  }
}

bool Compiler::WidensFor(const Op& op, const Fused& fused) {
  if (fused.count == op.post.size() || type(op.out).dtype != memory::data_type::bf16) return false;
  types_[op.out].dtype = memory::data_type::f32;
  return true;
}

}  // namespace collage::onednn
