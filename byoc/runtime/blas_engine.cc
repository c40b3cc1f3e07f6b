// SPDX-License-Identifier: Apache-2.0
#include "blas_engine.h"

#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/partitioner.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>

#include "blas_epilogue.h"
#include "blas_split.h"

namespace collage {
namespace {

// What the processor's widest loads want.
constexpr size_t kAlignment = 64;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Buffer = std::unique_ptr<void, Free>;

Buffer Allocate(size_t bytes) {
  void* memory = std::aligned_alloc(kAlignment, (bytes + kAlignment) / kAlignment * kAlignment);
  if (memory == nullptr) throw std::bad_alloc();
  return Buffer(memory);
}

int Int(int64_t value) { return static_cast<int>(value); }

int Trans(bool transposed) { return transposed ? kBlasTranspose : kBlasNoTranspose; }

// One product with the memory that it reads and writes.
template <typename T>
class PreparedProduct {
 public:
  PreparedProduct(const BlasLibrary& library, const BlasFunctions<T>& blas, const BlasProduct& shape)
      : blas_(blas), s_(shape), parallel_(library.parallel) {
    if (!parallel_) split_ = SplitProduct(shape, collage_num_threads());
  }

  // The right side never changes: it is brought into the library's own form once, where it has one.
  void Pack(const T* right) {
    if (!parallel_ || s_.batch != 1 || blas_.gemm_packed == nullptr) return;
    packed_ = Allocate(blas_.pack_size(kBlasRightMatrix, Int(s_.m), Int(s_.n), Int(s_.k)));
    blas_.pack(kBlasRowMajor, kBlasRightMatrix, Trans(s_.right_transposed), Int(s_.m), Int(s_.n), Int(s_.k),
               static_cast<T>(s_.alpha), right, Int(s_.LeadingRight()), static_cast<T*>(packed_.get()));
  }

  bool is_packed() const { return packed_ != nullptr; }

  // right is not read where it is packed.
  void Run(const T* left, const T* right, const T* bias, const T* residual, T* result) const {
    if (parallel_) {
      Whole(left, right, result);
      Finish(bias, residual, result);
    } else {
      InPieces(left, right, bias, residual, result);
    }
  }

 private:
  // All of the product by the library's own threads.
  void Whole(const T* left, const T* right, T* result) const {
    const int m = Int(s_.m), n = Int(s_.n), k = Int(s_.k);
    const int lda = Int(s_.LeadingLeft()), ldb = Int(s_.LeadingRight());
    const int ta = Trans(s_.left_transposed), tb = Trans(s_.right_transposed);
    const T alpha = static_cast<T>(s_.alpha);
    if (packed_ != nullptr) {
      blas_.gemm_packed(kBlasRowMajor, ta, kBlasPacked, m, n, k, left, lda,
                        static_cast<const T*>(packed_.get()), ldb, T(0), result, n);
      return;
    }
    if (s_.batch == 1) {
      blas_.gemm(kBlasRowMajor, ta, tb, m, n, k, alpha, left, lda, right, ldb, T(0), result, n);
      return;
    }
    const int64_t steps[] = {s_.m * s_.k, s_.k * s_.n, s_.m * s_.n};
    const bool fits = *std::max_element(steps, steps + 3) <= std::numeric_limits<int>::max();
    if (s_.left_batch && s_.right_batch && fits && blas_.gemm_batch_strided != nullptr) {
      blas_.gemm_batch_strided(kBlasRowMajor, ta, tb, m, n, k, alpha, left, lda, Int(steps[0]), right, ldb,
                               Int(steps[1]), T(0), result, n, Int(steps[2]), Int(s_.batch));
      return;
    }
    tbb::parallel_for(int64_t{0}, s_.batch, [&](int64_t b) {
      blas_.gemm(kBlasRowMajor, ta, tb, m, n, k, alpha, left + (s_.left_batch ? b * steps[0] : 0), lda,
                 right + (s_.right_batch ? b * steps[1] : 0), ldb, T(0), result + b * steps[2], n);
    });
  }

  // The epilogue of a whole product.
  void Finish(const T* bias, const T* residual, T* result) const {
    if (bias == nullptr && residual == nullptr && s_.activation == BlasActivation::kNone) return;
    // Elements for which waking another thread pays.
    constexpr int64_t kGrain = 16384;
    const int64_t rows = s_.batch * s_.m;
    tbb::parallel_for(tbb::blocked_range<int64_t>(0, rows, std::max<int64_t>(1, kGrain / s_.n)),
                      [&](const auto& range) {
                        const int64_t at = range.begin() * s_.n;
                        BlasEpilogue(result + at, range.end() - range.begin(), s_.n, s_.n, bias,
                                     residual == nullptr ? nullptr : residual + at, s_.activation);
                      });
  }

  // Pieces of the product, each with its epilogue, as tasks of the arena.
  void InPieces(const T* left, const T* right, const T* bias, const T* residual, T* result) const {
    const int64_t pieces = s_.batch * split_.Pieces();
    const auto run = [&](int64_t i) {
      const int64_t b = i / split_.Pieces();
      const Piece piece = split_.At(i % split_.Pieces());
      Block(left + (s_.left_batch ? b * s_.m * s_.k : 0), right + (s_.right_batch ? b * s_.k * s_.n : 0),
            piece, result + b * s_.m * s_.n);
      const int64_t at = b * s_.m * s_.n + piece.m0 * s_.n + piece.n0;
      BlasEpilogue(result + at, piece.m1 - piece.m0, piece.n1 - piece.n0, s_.n,
                   bias == nullptr ? nullptr : bias + piece.n0, residual == nullptr ? nullptr : residual + at,
                   s_.activation);
    };
    if (split_.serial) {
      for (int64_t i = 0; i < pieces; ++i) run(i);
    } else {
      tbb::parallel_for(int64_t{0}, pieces, run, tbb::simple_partitioner());
    }
  }

  // Rows m0 to m1 and columns n0 to n1 of one matrix of the batch.
  void Block(const T* left, const T* right, const Piece& p, T* result) const {
    const int lda = Int(s_.LeadingLeft()), ldb = Int(s_.LeadingRight());
    const T* a = left + (s_.left_transposed ? p.m0 : p.m0 * s_.k);
    const T* b = right + (s_.right_transposed ? p.n0 * s_.k : p.n0);
    T* c = result + p.m0 * s_.n + p.n0;
    const int rows = Int(p.m1 - p.m0), columns = Int(p.n1 - p.n0), k = Int(s_.k);
    const T alpha = static_cast<T>(s_.alpha);
    // A product with a vector reads its matrix once, for which the kernels of gemm are not made. What stands
    // in y is cleared, as a factor of 0 would keep a NaN.
    if (s_.m == 1) {
      std::memset(c, 0, sizeof(T) * columns);
      const bool by_rows = s_.right_transposed;
      blas_.gemv(kBlasRowMajor, by_rows ? kBlasNoTranspose : kBlasTranspose, by_rows ? columns : k,
                 by_rows ? k : columns, alpha, b, ldb, a, 1, T(0), c, 1);
    } else if (s_.n == 1) {
      std::memset(c, 0, sizeof(T) * rows);
      const bool by_rows = !s_.left_transposed;
      blas_.gemv(kBlasRowMajor, by_rows ? kBlasNoTranspose : kBlasTranspose, by_rows ? rows : k,
                 by_rows ? k : rows, alpha, a, lda, b, 1, T(0), c, 1);
    } else {
      blas_.gemm(kBlasRowMajor, Trans(s_.left_transposed), Trans(s_.right_transposed), rows, columns, k,
                 alpha, a, lda, b, ldb, T(0), c, Int(s_.n));
    }
  }

  const BlasFunctions<T>& blas_;
  const BlasProduct& s_;
  const bool parallel_;
  ProductSplit split_;
  Buffer packed_;
};

class BlasEngine final : public RegionEngine {
 public:
  BlasEngine(const BlasLibrary& library, BlasProgram program, const RegionConstants& constants)
      : program_(std::move(program)), values_(program_.num_values, nullptr) {
    if (constants.size() != program_.constants.size()) {
      throw std::runtime_error("it lacks constants; the model is damaged, compile it again");
    }
    for (size_t i = 0; i < constants.size(); ++i) {
      constants_.push_back(constants.Tensor(i));
      values_[program_.constants[i]] = TensorData(constants_[i].operator->());
    }
    results_in_output_.assign(program_.outputs.size(), false);
    for (const BlasProduct& p : program_.products) {
      Prepare(library, p);
    }
    ReleasePacked();
  }

  void Run(const std::vector<const DLTensor*>& inputs, const std::vector<DLTensor*>& outputs) final {
    for (size_t i = 0; i < inputs.size(); ++i) values_[program_.inputs[i]] = TensorData(inputs[i]);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (results_in_output_[i]) values_[program_.outputs[i]] = TensorData(outputs[i]);
    }
    for (size_t i = 0; i < program_.products.size(); ++i) {
      if (program_.products[i].is_double) {
        Execute<double>(program_.products[i], *doubles_[i]);
      } else {
        Execute<float>(program_.products[i], *floats_[i]);
      }
    }
    // A result that is returned twice, and an argument or constant that is returned as it is.
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (results_in_output_[i]) continue;
      std::memcpy(TensorData(outputs[i]), values_[program_.outputs[i]],
                  tvm::runtime::GetDataSize(*outputs[i]));
    }
  }

 private:
  // Makes room for a product's result, unless the caller brings it, and packs its weight.
  void Prepare(const BlasLibrary& library, const BlasProduct& p) {
    const auto output = std::find(program_.outputs.begin(), program_.outputs.end(), p.result);
    if (output != program_.outputs.end()) {
      results_in_output_[output - program_.outputs.begin()] = true;
    } else {
      buffers_.push_back(Allocate(p.ResultElements() * (p.is_double ? sizeof(double) : sizeof(float))));
      values_[p.result] = buffers_.back().get();
    }
    const bool constant = std::count(program_.constants.begin(), program_.constants.end(), p.right) > 0;
    floats_.emplace_back();
    doubles_.emplace_back();
    if (p.is_double) {
      doubles_.back() = std::make_unique<PreparedProduct<double>>(library, library.of_double, p);
      if (constant) doubles_.back()->Pack(static_cast<const double*>(values_[p.right]));
    } else {
      floats_.back() = std::make_unique<PreparedProduct<float>>(library, library.of_float, p);
      if (constant) floats_.back()->Pack(static_cast<const float*>(values_[p.right]));
    }
  }

  // Constants that are read in packed form only are not kept as they were.
  void ReleasePacked() {
    std::vector<bool> read(program_.num_values, false);
    for (const int value : program_.outputs) read[value] = true;
    for (size_t i = 0; i < program_.products.size(); ++i) {
      const BlasProduct& p = program_.products[i];
      const bool packed = p.is_double ? doubles_[i]->is_packed() : floats_[i]->is_packed();
      for (const int value : {p.left, p.bias, p.residual, packed ? -1 : p.right}) {
        if (value >= 0) read[value] = true;
      }
    }
    for (size_t i = 0; i < constants_.size(); ++i) {
      const int value = program_.constants[i];
      if (read[value]) continue;
      constants_[i] = {};
      values_[value] = nullptr;
    }
  }

  template <typename T>
  void Execute(const BlasProduct& p, const PreparedProduct<T>& product) const {
    const auto value = [&](int id) { return id < 0 ? nullptr : static_cast<const T*>(values_[id]); };
    product.Run(value(p.left), value(p.right), value(p.bias), value(p.residual),
                static_cast<T*>(values_[p.result]));
  }

  const BlasProgram program_;
  // Those that are read as they are; the others are empty.
  std::vector<tvm::runtime::NDArray> constants_;
  // Where each tensor is: constants and intermediate results for good, the others during Run.
  std::vector<void*> values_;
  // The output is where its product writes.
  std::vector<bool> results_in_output_;
  std::vector<Buffer> buffers_;
  // One of the two for each product.
  std::vector<std::unique_ptr<PreparedProduct<float>>> floats_;
  std::vector<std::unique_ptr<PreparedProduct<double>>> doubles_;
};

}  // namespace

std::unique_ptr<RegionEngine> MakeBlasEngine(const BlasLibrary& library, BlasProgram program,
                                             const RegionConstants& constants) {
  return std::make_unique<BlasEngine>(library, std::move(program), constants);
}

}  // namespace collage
