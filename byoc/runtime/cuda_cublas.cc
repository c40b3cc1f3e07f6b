// SPDX-License-Identifier: Apache-2.0
//
// Matrix products of cuBLASLt's within a region for a card, with what follows them, on tensors in the card's
// memory and the stream of TVM's kernels. byoc/blas writes what a call is, as a region of one product
// (blas_program.h).
#include <cuda_runtime.h>
#include <runtime/cuda/cuda_common.h>
#include <tvm/runtime/device_api.h>
#include <tvm/runtime/registry.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "blas_program.h"
#include "cuda_interface/cublas_lt.h"
#include "device_call.h"
#include "optional_library.h"

namespace collage {
namespace cuda {
namespace {

using tvm::runtime::TVMArgs;

// What an algorithm may have of the card's memory while it runs; NVIDIA's advice for Hopper.
constexpr size_t kWorkspace = size_t{32} << 20;

// The library, with its functions as members.
struct Library {
  Library()
      : file({"cuBLASLt",
              "pip install nvidia-cublas-cu12",
              "COLLAGE_CUBLASLT_LIBRARY",
              {"nvidia/cublas/lib/libcublasLt.so.12", "nvidia/cu13/lib/libcublasLt.so.13"},
              {},
              {"libcublasLt.so.12", "libcublasLt.so.13", "libcublasLt.so"}}) {
#define COLLAGE_GET(name, parameters) file.Get(#name, &name);
    COLLAGE_CUBLASLT(COLLAGE_GET)
#undef COLLAGE_GET
  }

  static const Library& Get() {
    static const Library* const library = new Library;
    return *library;
  }

  OptionalLibrary file;
#define COLLAGE_MEMBER(name, parameters) cublasStatus_t(*name) parameters;
  COLLAGE_CUBLASLT(COLLAGE_MEMBER)
#undef COLLAGE_MEMBER
};

void Check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw std::runtime_error("cuBLASLt, " + std::string(what) + ": error " + std::to_string(status) +
                           " (cublas_api.h says what that is)");
}

// Something of cuBLASLt's that is destroyed when it goes.
template <typename Handle>
class Owned {
 public:
  explicit Owned(cublasStatus_t (*destroy)(Handle)) : destroy_(destroy) {}
  ~Owned() {
    if (handle_ != nullptr) destroy_(handle_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  Handle* to() { return &handle_; }
  Handle get() const { return handle_; }

 private:
  cublasStatus_t (*const destroy_)(Handle);
  Handle handle_ = nullptr;
};

// What cuBLASLt has of a card, which calls of all threads may use. It lives as long as the process.
cublasLtHandle_t HandleOf(int card) {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;
  const std::lock_guard<std::mutex> lock(mutex);
  cublasLtHandle_t& handle = handles[card];
  if (handle == nullptr) Check(Library::Get().cublasLtCreate(&handle), "beginning");
  return handle;
}

// A product as cuBLASLt is told it on one card. Its matrices are stored by columns; one stored by rows is its
// own transpose then, so that it computes the transposed result, of the right side times the left.
struct Prepared {
  Prepared(const BlasProduct& p, int card)
      : handle(HandleOf(card)),
        product(Library::Get().cublasLtMatmulDescDestroy),
        right(Library::Get().cublasLtMatrixLayoutDestroy),
        left(Library::Get().cublasLtMatrixLayoutDestroy),
        result(Library::Get().cublasLtMatrixLayoutDestroy),
        preference(Library::Get().cublasLtMatmulPreferenceDestroy) {
    const Library& lt = Library::Get();
    const cudaDataType_t type = p.is_double ? CUDA_R_64F : CUDA_R_32F;
    Check(lt.cublasLtMatmulDescCreate(product.to(), p.is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                      type),
          "describing a product");
    const int32_t of_right = p.right_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                  of_left = p.left_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const bool relu = p.activation == BlasActivation::kRelu;
    const uint32_t epilogue = p.bias >= 0 ? (relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS)
                                          : (relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT);
    Set(CUBLASLT_MATMUL_DESC_TRANSA, of_right);
    Set(CUBLASLT_MATMUL_DESC_TRANSB, of_left);
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    const uint64_t n = static_cast<uint64_t>(p.n), m = static_cast<uint64_t>(p.m),
                   k = static_cast<uint64_t>(p.k);
    Describe(&right, type, p.right_transposed ? k : n, p.right_transposed ? n : k, p.batch,
             p.right_batch ? p.n * p.k : 0);
    Describe(&left, type, p.left_transposed ? m : k, p.left_transposed ? k : m, p.batch,
             p.left_batch ? p.m * p.k : 0);
    Describe(&result, type, n, m, p.batch, p.m * p.n);
    Check(lt.cublasLtMatmulPreferenceCreate(preference.to()), "choosing an algorithm");
    const uint64_t most = kWorkspace;
    Check(lt.cublasLtMatmulPreferenceSetAttribute(preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                  &most, sizeof(most)),
          "choosing an algorithm");
  }

  // The algorithm that cuBLASLt believes to be the best; the bias must have been set.
  void Choose() {
    if (chosen) return;
    int found = 0;
    Check(Library::Get().cublasLtMatmulAlgoGetHeuristic(handle, product.get(), right.get(), left.get(),
                                                        result.get(), result.get(), preference.get(), 1,
                                                        &algorithm, &found),
          "choosing an algorithm");
    if (found == 0) throw std::runtime_error("cuBLASLt has no algorithm for the product on this card");
    chosen = true;
  }

  template <typename Value>
  void Set(cublasLtMatmulDescAttributes_t what, const Value& value) {
    Check(Library::Get().cublasLtMatmulDescSetAttribute(product.get(), what, &value, sizeof(value)),
          "describing a product");
  }

  static void Describe(Owned<cublasLtMatrixLayout_t>* layout, cudaDataType_t type, uint64_t rows,
                       uint64_t columns, int64_t batch, int64_t step) {
    const Library& lt = Library::Get();
    const int32_t count = static_cast<int32_t>(batch);
    Check(lt.cublasLtMatrixLayoutCreate(layout->to(), type, rows, columns, static_cast<int64_t>(rows)),
          "describing a matrix");
    Check(lt.cublasLtMatrixLayoutSetAttribute(layout->get(), CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                              sizeof(count)),
          "describing a matrix");
    Check(lt.cublasLtMatrixLayoutSetAttribute(layout->get(), CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                              &step, sizeof(step)),
          "describing a matrix");
  }

  cublasLtContext* const handle;
  Owned<cublasLtMatmulDesc_t> product;
  Owned<cublasLtMatrixLayout_t> right, left, result;
  Owned<cublasLtMatmulPreference_t> preference;
  bool chosen = false;
  cublasLtMatmulHeuristicResult_t algorithm = {};
};

// One call.
class Product {
 public:
  explicit Product(const std::string& text)
      : program_(BlasProgram::Parse(text)), state_(std::make_shared<State>()) {
    if (program_.products.size() != 1 || !program_.constants.empty() || program_.outputs.size() != 1 ||
        program_.products[0].activation == BlasActivation::kGelu) {
      throw std::runtime_error(
          "a call of cuBLAS was written by another version of Collage, or the file is damaged; compile the "
          "model "
          "again");
    }
  }

  void operator()(const TVMArgs& args) const {
    const BlasProduct& p = program_.products[0];
    const auto memory = [&](int number) -> void* {
      if (number < 0) return nullptr;
      const auto at =
          std::find(program_.inputs.begin(), program_.inputs.end(), number) - program_.inputs.begin();
      return Memory(args, static_cast<int>(at), p.is_double);
    };
    const int last = args.size() - 1;
    void* const result = Memory(args, last, p.is_double);
    const DLDevice card = args[last].operator DLTensor*()->device;
    void *const left = memory(p.left), *const right = memory(p.right), *const bias = memory(p.bias),
                *const residual = memory(p.residual);
    tvm::runtime::DeviceAPI* const api = tvm::runtime::DeviceAPI::Get(card);
    api->SetDevice(card);
    const std::lock_guard<std::mutex> lock(state_->mutex);
    std::unique_ptr<Prepared>& prepared = state_->on[card.device_id];
    if (prepared == nullptr) prepared = std::make_unique<Prepared>(p, card.device_id);
    if (bias != nullptr) prepared->Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    prepared->Choose();
    const size_t bytes = prepared->algorithm.workspaceSize;
    // TVM's pool: given back at once, and not to another stream before this one has run.
    void* const workspace = bytes > 0 ? api->AllocWorkspace(card, bytes, {}) : nullptr;
    const float alpha = static_cast<float>(p.alpha), beta = residual != nullptr ? 1.0F : 0.0F;
    const double wide_alpha = p.alpha, wide_beta = beta;
    const cublasStatus_t status = Library::Get().cublasLtMatmul(
        prepared->handle, prepared->product.get(),
        p.is_double ? static_cast<const void*>(&wide_alpha) : &alpha, right, prepared->right.get(), left,
        prepared->left.get(), p.is_double ? static_cast<const void*>(&wide_beta) : &beta,
        residual != nullptr ? residual : result, prepared->result.get(), result, prepared->result.get(),
        &prepared->algorithm.algo, workspace, bytes, tvm::runtime::GetCUDAStream());
    if (workspace != nullptr) api->FreeWorkspace(card, workspace);
    Check(status, "multiplying");
  }

 private:
  static void* Memory(const TVMArgs& args, int at, bool is_double) {
    ICHECK_LT(at, args.size());
    const DLTensor* const tensor = args[at].operator DLTensor*();
    ICHECK(tensor->device.device_type == kDLCUDA && tensor->data != nullptr)
        << "cuBLAS was given a tensor that is not in a card's memory";
    ICHECK(tensor->dtype.code == kDLFloat && tensor->dtype.bits == (is_double ? 64 : 32) &&
           tvm::runtime::IsContiguous(*tensor))
        << "cuBLAS was given a tensor of another type than it was compiled for";
    return static_cast<char*>(tensor->data) + tensor->byte_offset;
  }

  // What is made when it is first needed, for each card; one call at a time is told to the library.
  struct State {
    std::mutex mutex;
    std::map<int, std::unique_ptr<Prepared>> on;
  };

  const BlasProgram program_;
  const std::shared_ptr<State> state_;
};

const device::Calls calls = {
    "collage_cublas",
    "cuBLAS",
    0x31544C5342554343,  // "CCUBSLT1"
    [](const std::string& text) -> device::Call { return Product(text); },
    [] { Library::Get(); },
};

// The module of one call: the symbol under which TVM calls it, and the text that says what it is.
TVM_REGISTER_GLOBAL("collage.runtime.cuda.CublasCreate")
    .set_body_typed([](std::string symbol, std::string text) {
      return device::MakeCall(calls, symbol, text);
    });

// What TVM loads such a module with.
TVM_REGISTER_GLOBAL("runtime.module.loadbinary_collage_cublas").set_body_typed([](void* stream) {
  return device::LoadCall(calls, stream);
});

}  // namespace
}  // namespace cuda
}  // namespace collage
