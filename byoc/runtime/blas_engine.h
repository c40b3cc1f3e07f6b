// SPDX-License-Identifier: Apache-2.0
//
// Runs the matrix products of a region on a BLAS library.
#ifndef COLLAGE_BLAS_ENGINE_H_
#define COLLAGE_BLAS_ENGINE_H_

#include <cstddef>
#include <memory>

#include "blas_program.h"
#include "region_module.h"

namespace collage {

// The constants of CBLAS's interface.
enum BlasConstant {
  kBlasRowMajor = 101,
  kBlasNoTranspose = 111,
  kBlasTranspose = 112,
  kBlasPacked = 151,
  kBlasRightMatrix = 162,
};

// The functions of a library for one type of element; those that it lacks are nullptr.
template <typename T>
struct BlasFunctions {
  void (*gemm)(int order, int trans_a, int trans_b, int m, int n, int k, T alpha, const T* a, int lda,
               const T* b, int ldb, T beta, T* c, int ldc) = nullptr;
  void (*gemv)(int order, int trans, int rows, int columns, T alpha, const T* a, int lda, const T* x,
               int increment_x, T beta, T* y, int increment_y) = nullptr;
  void (*gemm_batch_strided)(int order, int trans_a, int trans_b, int m, int n, int k, T alpha, const T* a,
                             int lda, int stride_a, const T* b, int ldb, int stride_b, T beta, T* c, int ldc,
                             int stride_c, int batch) = nullptr;
  size_t (*pack_size)(int which, int m, int n, int k) = nullptr;
  void (*pack)(int order, int which, int trans, int m, int n, int k, T alpha, const T* from, int ld,
               T* to) = nullptr;
  void (*gemm_packed)(int order, int trans_a, int trans_b, int m, int n, int k, const T* a, int lda,
                      const T* b, int ldb, T beta, T* c, int ldc) = nullptr;
};

struct BlasLibrary {
  BlasFunctions<float> of_float;
  BlasFunctions<double> of_double;
  // The library spreads a product over the arena by itself. One that does not runs on the calling thread.
  bool parallel = false;
};

// Makes the engine of a parsed program; constants as in RegionProgram. The library lives for ever.
std::unique_ptr<RegionEngine> MakeBlasEngine(const BlasLibrary& library, BlasProgram program,
                                             const RegionConstants& constants);

}  // namespace collage

#endif  // COLLAGE_BLAS_ENGINE_H_
