// SPDX-License-Identifier: Apache-2.0
//
// cuBLASLt on the emulated card: matrices by columns, D = epilogue(alpha op(A) op(B) + beta C). What is not
// asked for in byoc/runtime/cuda_cublas.cc is refused.
#include <cstdint>
#include <cstring>
#include <vector>

#include "card.h"

namespace {

constexpr int kSuccess = 0, kInvalidValue = 7, kNotSupported = 15;
constexpr int kTransposed = 1;

struct Product {
  int computed, scale;
  int32_t transposed[2] = {0, 0};
  uint32_t epilogue = 1;
  const void* bias = nullptr;
};

struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t step;
  int32_t batch = 1;
  int64_t batch_step = 0;
};

struct Algorithm {
  uint64_t data[8];
};
struct Result {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
// What the algorithm wants, so that it is seen to be given it.
constexpr size_t kWorkspace = 4096;

template <typename Value>
bool Read(Value* to, const void* from, size_t bytes) {
  if (bytes != sizeof(Value)) return false;
  std::memcpy(to, from, bytes);
  return true;
}

size_t Width(const Layout& layout) { return layout.type == 1 ? 8 : 4; }

// Whether all of a matrix, or of as many as there are, is on the card.
bool Holds(const Layout& layout, const void* at) {
  const int64_t last = (layout.batch - 1) * layout.batch_step +
                       layout.step * static_cast<int64_t>(layout.columns - 1) +
                       static_cast<int64_t>(layout.rows);
  return OnTheCard(at, static_cast<size_t>(last) * Width(layout));
}

template <typename Number>
void Multiply(const Product& product, Number alpha, const Number* a, const Layout& la, const Number* b,
              const Layout& lb, Number beta, const Number* c, Number* d, const Layout& ld) {
  const uint64_t inner = product.transposed[0] == kTransposed ? la.rows : la.columns;
  const auto* const bias = static_cast<const Number*>(product.bias);
  for (int32_t batch = 0; batch < ld.batch; ++batch) {
    for (uint64_t column = 0; column < ld.columns; ++column) {
      for (uint64_t row = 0; row < ld.rows; ++row) {
        double sum = 0;
        for (uint64_t k = 0; k < inner; ++k) {
          const uint64_t in_a = product.transposed[0] == kTransposed ? row * la.step + k : k * la.step + row;
          const uint64_t in_b =
              product.transposed[1] == kTransposed ? k * lb.step + column : column * lb.step + k;
          sum += static_cast<double>(a[batch * la.batch_step + in_a]) * b[batch * lb.batch_step + in_b];
        }
        const uint64_t at = batch * ld.batch_step + column * ld.step + row;
        Number value = alpha * static_cast<Number>(sum);
        if (beta != 0) value += beta * c[at];
        if ((product.epilogue & 4) != 0) value += bias[row];
        if ((product.epilogue & 2) != 0 && value < 0) value = 0;
        d[at] = value;
      }
    }
  }
}

}  // namespace

extern "C" {

int cublasLtCreate(void** handle) {
  *handle = new int(0);
  return kSuccess;
}
int cublasLtMatmulDescCreate(void** product, int computed, int scale) {
  if ((computed != 68 || scale != 0) && (computed != 70 || scale != 1)) return kNotSupported;
  auto* const made = new Product;
  made->computed = computed;
  made->scale = scale;
  *product = made;
  return kSuccess;
}
int cublasLtMatmulDescDestroy(void* product) {
  delete static_cast<Product*>(product);
  return kSuccess;
}
int cublasLtMatmulDescSetAttribute(void* given, int what, const void* value, size_t bytes) {
  auto* const product = static_cast<Product*>(given);
  bool read = false;
  if (what == 3 || what == 4) read = Read(&product->transposed[what - 3], value, bytes);
  if (what == 7) read = Read(&product->epilogue, value, bytes);
  if (what == 8) read = Read(&product->bias, value, bytes);
  return read ? kSuccess : kInvalidValue;
}
int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns, int64_t step) {
  if (step < static_cast<int64_t>(rows) || rows == 0 || columns == 0) return kInvalidValue;
  *layout = new Layout{type, rows, columns, step};
  return kSuccess;
}
int cublasLtMatrixLayoutDestroy(void* layout) {
  delete static_cast<Layout*>(layout);
  return kSuccess;
}
int cublasLtMatrixLayoutSetAttribute(void* given, int what, const void* value, size_t bytes) {
  auto* const layout = static_cast<Layout*>(given);
  bool read = false;
  if (what == 5) read = Read(&layout->batch, value, bytes);
  if (what == 6) read = Read(&layout->batch_step, value, bytes);
  return read ? kSuccess : kInvalidValue;
}
int cublasLtMatmulPreferenceCreate(void** preference) {
  *preference = new uint64_t(0);
  return kSuccess;
}
int cublasLtMatmulPreferenceDestroy(void* preference) {
  delete static_cast<uint64_t*>(preference);
  return kSuccess;
}
int cublasLtMatmulPreferenceSetAttribute(void* preference, int what, const void* value, size_t bytes) {
  return what == 1 && Read(static_cast<uint64_t*>(preference), value, bytes) ? kSuccess : kInvalidValue;
}
int cublasLtMatmulAlgoGetHeuristic(void*, void* given, void* a, void*, void*, void* d, void* preference,
                                   int wanted, Result results[], int* found) {
  const auto* const product = static_cast<const Product*>(given);
  if (wanted < 1 || static_cast<Layout*>(a)->batch != static_cast<Layout*>(d)->batch) return kInvalidValue;
  // The real one looks at where the bias lies.
  if ((product->epilogue & 4) != 0 && product->bias == nullptr) return kInvalidValue;
  *found = *static_cast<uint64_t*>(preference) >= kWorkspace ? 1 : 0;
  results[0] = {{{17}}, kWorkspace, kSuccess, 1.0F, {}};
  return kSuccess;
}
int cublasLtMatmul(void*, void* given, const void* alpha, const void* a, void* a_layout, const void* b,
                   void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                   const Algorithm* algorithm, void* workspace, size_t workspace_bytes, void* stream) {
  const auto& product = *static_cast<const Product*>(given);
  const auto &la = *static_cast<const Layout*>(a_layout), &lb = *static_cast<const Layout*>(b_layout),
             &lc = *static_cast<const Layout*>(c_layout), &ld = *static_cast<const Layout*>(d_layout);
  const AtTheCard inside;
  const uint64_t rows = product.transposed[0] == kTransposed ? la.columns : la.rows;
  const uint64_t columns = product.transposed[1] == kTransposed ? lb.rows : lb.columns;
  if (!Holds(la, a) || !Holds(lb, b) || !Holds(lc, c) || !Holds(ld, d) || rows != ld.rows ||
      columns != ld.columns || algorithm->data[0] != 17 || workspace_bytes < kWorkspace ||
      !OnTheCard(workspace, workspace_bytes) || stream != nullptr || la.batch != ld.batch ||
      lb.batch != ld.batch) {
    return kInvalidValue;
  }
  if ((product.epilogue & 4) != 0 && !OnTheCard(product.bias, ld.rows * Width(ld))) return kInvalidValue;
  const bool wide = product.scale == 1;
  const auto real = [&](const void* at) {
    return wide ? *static_cast<const double*>(at) : static_cast<double>(*static_cast<const float*>(at));
  };
  Log("cublasLtMatmul %s%s %llux%llux%llu x%d epilogue %u alpha %g beta %g%s",
      product.transposed[0] != 0 ? "T" : "N", product.transposed[1] != 0 ? "T" : "N",
      static_cast<unsigned long long>(rows), static_cast<unsigned long long>(columns),
      static_cast<unsigned long long>(product.transposed[0] == kTransposed ? la.rows : la.columns), ld.batch,
      product.epilogue, real(alpha), real(beta), wide ? " f64" : "");
  if (wide) {
    Multiply(product, real(alpha), static_cast<const double*>(a), la, static_cast<const double*>(b), lb,
             real(beta), static_cast<const double*>(c), static_cast<double*>(d), ld);
  } else {
    Multiply(product, static_cast<float>(real(alpha)), static_cast<const float*>(a), la,
             static_cast<const float*>(b), lb, static_cast<float>(real(beta)), static_cast<const float*>(c),
             static_cast<float*>(d), ld);
  }
  return kSuccess;
}

}  // extern "C"
