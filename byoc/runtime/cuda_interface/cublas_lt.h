// SPDX-License-Identifier: Apache-2.0
//
// The part of cuBLASLt that is used here, in the place of NVIDIA's header; tests/test_cublas.py holds it to
// that.
#ifndef COLLAGE_CUBLAS_LT_H_
#define COLLAGE_CUBLAS_LT_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>

typedef int cublasStatus_t;
enum { CUBLAS_STATUS_SUCCESS = 0 };
typedef enum { CUDA_R_32F = 0, CUDA_R_64F = 1 } cudaDataType_t;
typedef enum { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_64F = 70 } cublasComputeType_t;
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 } cublasOperation_t;
typedef enum {
  CUBLASLT_MATMUL_DESC_TRANSA = 3,
  CUBLASLT_MATMUL_DESC_TRANSB = 4,
  CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
  CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
} cublasLtMatmulDescAttributes_t;
typedef enum {
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6,
} cublasLtMatrixLayoutAttribute_t;
typedef enum { CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1 } cublasLtMatmulPreferenceAttributes_t;
typedef enum {
  CUBLASLT_EPILOGUE_DEFAULT = 1,
  CUBLASLT_EPILOGUE_RELU = 2,
  CUBLASLT_EPILOGUE_BIAS = 4,
  CUBLASLT_EPILOGUE_RELU_BIAS = 6,
} cublasLtEpilogue_t;

typedef struct cublasLtContext* cublasLtHandle_t;
typedef struct cublasLtMatmulDescOpaque* cublasLtMatmulDesc_t;
typedef struct cublasLtMatrixLayoutOpaque* cublasLtMatrixLayout_t;
typedef struct cublasLtMatmulPreferenceOpaque* cublasLtMatmulPreference_t;
typedef struct {
  uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  cublasStatus_t state;
  float wavesCount;
  int reserved[4];
} cublasLtMatmulHeuristicResult_t;

// Each function: its name in the library, and what it takes.
#define COLLAGE_CUBLASLT(F)                                                                                 \
  F(cublasLtCreate, (cublasLtHandle_t * handle))                                                            \
  F(cublasLtMatmulDescCreate,                                                                               \
    (cublasLtMatmulDesc_t * product, cublasComputeType_t computed, cudaDataType_t scale))                   \
  F(cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t product))                                              \
  F(cublasLtMatmulDescSetAttribute,                                                                         \
    (cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t what, const void* value, size_t bytes))   \
  F(cublasLtMatrixLayoutCreate, (cublasLtMatrixLayout_t * layout, cudaDataType_t type, uint64_t rows,       \
                                 uint64_t columns, int64_t column_step))                                    \
  F(cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t layout))                                           \
  F(cublasLtMatrixLayoutSetAttribute,                                                                       \
    (cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t what, const void* value, size_t bytes)) \
  F(cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t * preference))                              \
  F(cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference))                               \
  F(cublasLtMatmulPreferenceSetAttribute,                                                                   \
    (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t what, const void* value,   \
     size_t bytes))                                                                                         \
  F(cublasLtMatmulAlgoGetHeuristic,                                                                         \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a,                       \
     cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,                          \
     cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t results[],          \
     int* found))                                                                                           \
  F(cublasLtMatmul,                                                                                         \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void* alpha, const void* a,               \
     cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,     \
     const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,              \
     const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes, CUstream stream))

#endif  // COLLAGE_CUBLAS_LT_H_
