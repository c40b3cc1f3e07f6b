// SPDX-License-Identifier: Apache-2.0
//
// Whether a program for oneDNN makes sense, so that whoever compiles it may take it at its word: nothing is
// read before it is made, operators have the arguments and attributes that they need, and these fit each
// other. Without this a damaged model would read and write beyond its tensors.
#ifndef COLLAGE_DNNL_CHECK_PROGRAM_H_
#define COLLAGE_DNNL_CHECK_PROGRAM_H_

#include <tvm/runtime/ndarray.h>

#include <vector>

#include "dnnl_program.h"

namespace collage::onednn {

// Throws std::runtime_error that names the operation and the argument.
void CheckProgram(const Program& program);

// Whether the constants are those that the program speaks of: as many, of these types and sizes. Throws
// likewise.
void CheckConstants(const Program& program, const std::vector<tvm::runtime::NDArray>& constants);

// DLPack's word for an element type.
DLDataType ElementType(const ValueType& type);

// A shape as it is written, "[1, 64, 56, 56]".
std::string ShapeText(const Dims& dims);

}  // namespace collage::onednn

#endif  // COLLAGE_DNNL_CHECK_PROGRAM_H_
