// SPDX-License-Identifier: Apache-2.0
//
// How products are cut into pieces, and the engine of the BLAS backends on a library that is written here.
//
// ctest: threads
#include <gtest/gtest.h>
#include <tvm/runtime/ndarray.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "arena.h"
#include "blas_engine.h"
#include "blas_split.h"
#include "sample.h"

namespace collage {
namespace {

TEST(BlasSplit, ThePiecesAreTheWhole) {
  for (const int64_t m : {1, 2, 15, 16, 17, 100, 1000}) {
    for (const int64_t n : {1, 15, 16, 33, 500, 4096}) {
      for (const int64_t batch : {1, 3}) {
        for (const int threads : {1, 2, 3, 8, 61}) {
          BlasProduct product;
          product.m = m;
          product.n = n;
          product.k = 64;
          product.batch = batch;
          const ProductSplit split = SplitProduct(product, threads);
          std::vector<int> covered(m * n, 0);
          for (int64_t i = 0; i < split.Pieces(); ++i) {
            const Piece piece = split.At(i);
            ASSERT_TRUE(0 <= piece.m0 && piece.m0 <= piece.m1 && piece.m1 <= m);
            ASSERT_TRUE(0 <= piece.n0 && piece.n0 <= piece.n1 && piece.n1 <= n);
            for (int64_t r = piece.m0; r < piece.m1; ++r) {
              for (int64_t c = piece.n0; c < piece.n1; ++c) ++covered[r * n + c];
            }
          }
          ASSERT_TRUE(std::all_of(covered.begin(), covered.end(), [](int times) { return times == 1; }))
              << m << " by " << n << " on " << threads << " threads";
          EXPECT_TRUE(split.serial || threads > 1);
        }
      }
    }
  }
}

template <typename T>
void Gemm(int, int trans_a, int trans_b, int m, int n, int k, T alpha, const T* a, int lda, const T* b,
          int ldb, T beta, T* c, int ldc) {
  for (int r = 0; r < m; ++r) {
    for (int x = 0; x < n; ++x) {
      T sum = 0;
      for (int i = 0; i < k; ++i) {
        sum += (trans_a == kBlasTranspose ? a[i * lda + r] : a[r * lda + i]) *
               (trans_b == kBlasTranspose ? b[x * ldb + i] : b[i * ldb + x]);
      }
      c[r * ldc + x] = alpha * sum + (beta == 0 ? 0 : beta * c[r * ldc + x]);
    }
  }
}

template <typename T>
void Gemv(int, int trans, int rows, int columns, T alpha, const T* a, int lda, const T* x, int, T beta, T* y,
          int) {
  const int count = trans == kBlasTranspose ? columns : rows,
            length = trans == kBlasTranspose ? rows : columns;
  for (int r = 0; r < count; ++r) {
    T sum = 0;
    for (int i = 0; i < length; ++i)
      sum += (trans == kBlasTranspose ? a[i * lda + r] : a[r * lda + i]) * x[i];
    y[r] = alpha * sum + beta * y[r];
  }
}

const BlasLibrary& Plain() {
  static const BlasLibrary* const library = [] {
    auto* made = new BlasLibrary;
    made->of_float.gemm = Gemm<float>;
    made->of_float.gemv = Gemv<float>;
    made->of_double.gemm = Gemm<double>;
    made->of_double.gemv = Gemv<double>;
    return made;
  }();
  return *library;
}

struct Shape {
  int64_t m, n, k, batch;
  bool left_batch, right_batch, left_transposed, right_transposed;
};

void Check(const Shape& s, int threads) {
  BlasProgram program;
  program.inputs = {0, 1, 2, 3};
  program.outputs = {4};
  program.num_values = 5;
  BlasProduct p;
  p.m = s.m;
  p.n = s.n;
  p.k = s.k;
  p.batch = s.batch;
  p.left_batch = s.left_batch;
  p.right_batch = s.right_batch;
  p.left_transposed = s.left_transposed;
  p.right_transposed = s.right_transposed;
  p.alpha = 0.5;
  p.activation = BlasActivation::kRelu;
  p.left = 0;
  p.right = 1;
  p.bias = 2;
  p.residual = 3;
  p.result = 4;
  program.products = {p};
  const int64_t lefts = s.left_batch ? s.batch : 1, rights = s.right_batch ? s.batch : 1;
  std::vector<std::vector<float>> data = {Sample(lefts * s.m * s.k, 1), Sample(rights * s.k * s.n, 2),
                                          Sample(s.n, 3), Sample(s.batch * s.m * s.n, 4)};
  std::vector<float> out(s.batch * s.m * s.n, 1e9F);
  std::vector<int64_t> sizes;
  for (const auto& one : data) sizes.push_back(static_cast<int64_t>(one.size()));
  sizes.push_back(static_cast<int64_t>(out.size()));
  std::vector<DLTensor> tensors;
  for (size_t i = 0; i < 5; ++i) {
    tensors.push_back(
        {i < 4 ? data[i].data() : out.data(), {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, &sizes[i], nullptr, 0});
  }
  SetNumThreads(threads);
  std::unique_ptr<RegionEngine> engine;
  const auto work = [&] {
    engine = MakeBlasEngine(Plain(), program, RegionConstants());
    engine->Run({&tensors[0], &tensors[1], &tensors[2], &tensors[3]}, {&tensors[4]});
  };
  RunInArena(
      CurrentArena(), [](void* body) { (*static_cast<decltype(work)*>(body))(); },
      const_cast<void*>(static_cast<const void*>(&work)));
  std::vector<double> want;
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t r = 0; r < s.m; ++r) {
      for (int64_t c = 0; c < s.n; ++c) {
        double sum = 0;
        for (int64_t k = 0; k < s.k; ++k) {
          const int64_t l =
              (s.left_batch ? b * s.m * s.k : 0) + (s.left_transposed ? k * s.m + r : r * s.k + k);
          const int64_t g =
              (s.right_batch ? b * s.k * s.n : 0) + (s.right_transposed ? c * s.k + k : k * s.n + c);
          sum += static_cast<double>(data[0][l]) * data[1][g];
        }
        want.push_back(std::max(0.0, 0.5 * sum + data[2][c] + data[3][want.size()]));
      }
    }
  }
  ExpectClose(out, want, 1e-4, std::to_string(s.m) + " by " + std::to_string(s.n));
}

TEST(BlasEngine, ProductsAndVectorsInAllOrders) {
  for (const int threads : {1, 3}) {
    for (const bool left : {false, true}) {
      for (const bool right : {false, true}) {
        Check({5, 7, 3, 1, false, false, left, right}, threads);
        Check({1, 40, 33, 1, false, false, left, right}, threads);
        Check({40, 1, 33, 1, false, false, left, right}, threads);
        Check({80, 70, 64, 2, true, true, left, right}, threads);
        Check({33, 100, 50, 3, true, false, left, right}, threads);
      }
    }
  }
}

}  // namespace
}  // namespace collage
