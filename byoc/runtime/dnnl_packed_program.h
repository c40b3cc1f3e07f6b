// SPDX-License-Identifier: Apache-2.0
//
// What the packed values of a program (Packed) are where they have the rows of tokens alone: the same program
// with fewer rows, in which attention goes sequence by sequence.
#ifndef COLLAGE_DNNL_PACKED_PROGRAM_H_
#define COLLAGE_DNNL_PACKED_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "dnnl_program.h"
#include "native/ragged.h"

namespace collage::onednn {

// Whether anything of a program can be packed.
bool IsRagged(const Program& program);

// Throws std::runtime_error where what a program says of its packed values cannot be.
void CheckPacked(const Program& program);

// The program where packed values have so many rows, tokens' and then others of which nothing is said.
// tokens must hold what is true of a call when its plan runs. keeps says of an attention, and one of its
// masks, whether that does anything to tokens; those that do not are left out. Triangles stay.
Program AtTokens(const Program& program, int64_t rows,
                 const std::shared_ptr<const native::RaggedRows>& tokens,
                 const std::function<bool(const Op&, size_t mask)>& keeps);

// The dimensions of the input that says which rows are tokens: batch, length, ...
const Dims& ValidDims(const Program& program);

// Batch times length: the rows that packed values have as the program stands.
int64_t PaddedRows(const Program& program);

// Whether an operation is an attention on packed values.
bool IsPackedAttention(const Program& program, const Op& op);

}  // namespace collage::onednn

#endif  // COLLAGE_DNNL_PACKED_PROGRAM_H_
