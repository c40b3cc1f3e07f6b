// SPDX-License-Identifier: Apache-2.0
//
// Products and convolutions of CLBlast's within a region for an OpenCL device. TVM calls each of them as it
// calls its own kernels there: with tensors in the device's memory, which CLBlast is given as they are, and
// on the queue on which TVM's kernels run. byoc/opencl/clblast_call.go writes what a call is, as a line of
// words:
//
//	gemm <m> <n> <k> <batch> <transposed left> <transposed right> <left> <right> <left step> <right step>
//	gemv <rows> <columns> <matrix> <vector>
//	convgemm <batch> <channels> <height> <width> <kernels> <kernel height> <kernel width> <padding y> <x>
//	         <stride y> <x> <dilation y> <x> <data> <weight>
//
// left, right, matrix, vector, data and weight are arguments of the call, by their numbers; the result is the
// last one. A step is how many elements lie between the matrices of a batch, 0 where all share one.
#include <runtime/opencl/opencl_common.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>

#include <array>
#include <cstddef>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "device_call.h"
#include "opencl_library.h"
#include "optional_library.h"

namespace collage {
namespace opencl {
namespace {

namespace cl = tvm::runtime::cl;
using tvm::runtime::TVMArgs;

// CLBlast's numbers for what it is asked (clblast_c.h).
constexpr int kRowMajor = 101, kAsItIs = 111, kTransposed = 112, kCrossCorrelation = 151, kSuccess = 0;

// What is called of CLBlast. Sizes are in elements.
struct Library {
  using Gemm = int (*)(int layout, int left_transposed, int right_transposed, size_t m, size_t n, size_t k,
                       float alpha, cl_mem left, size_t left_offset, size_t left_row, cl_mem right,
                       size_t right_offset, size_t right_row, float beta, cl_mem result, size_t result_offset,
                       size_t result_row, cl_command_queue* queue, cl_event* event);
  using BatchedGemm = int (*)(int layout, int left_transposed, int right_transposed, size_t m, size_t n,
                              size_t k, float alpha, cl_mem left, size_t left_offset, size_t left_row,
                              size_t left_step, cl_mem right, size_t right_offset, size_t right_row,
                              size_t right_step, float beta, cl_mem result, size_t result_offset,
                              size_t result_row, size_t result_step, size_t batch, cl_command_queue* queue,
                              cl_event* event);
  using Gemv = int (*)(int layout, int transposed, size_t m, size_t n, float alpha, cl_mem matrix,
                       size_t matrix_offset, size_t matrix_row, cl_mem vector, size_t vector_offset,
                       size_t vector_step, float beta, cl_mem result, size_t result_offset,
                       size_t result_step, cl_command_queue* queue, cl_event* event);
  using Convgemm = int (*)(int mode, size_t channels, size_t height, size_t width, size_t kernel_height,
                           size_t kernel_width, size_t padding_y, size_t padding_x, size_t stride_y,
                           size_t stride_x, size_t dilation_y, size_t dilation_x, size_t kernels,
                           size_t batch, cl_mem data, size_t data_offset, cl_mem weight, size_t weight_offset,
                           cl_mem result, size_t result_offset, cl_command_queue* queue, cl_event* event);

  using Fill = cl_int (*)(cl_command_queue queue, cl_mem memory, const void* pattern, size_t pattern_bytes,
                          size_t offset_bytes, size_t bytes, cl_uint waits, const cl_event* wait,
                          cl_event* event);

  Library()
      : file({"CLBlast",
              "on Debian: apt-get install libclblast1",
              "COLLAGE_CLBLAST_LIBRARY",
              {},
              {},
              {"libclblast.so.1", "libclblast.so"}}) {
    file.Get("CLBlastSgemm", &gemm);
    file.Get("CLBlastSgemmStridedBatched", &batched_gemm);
    file.Get("CLBlastSgemv", &gemv);
    file.Get("CLBlastSconvgemm", &convgemm);
    Loader().Get("clEnqueueFillBuffer", &fill);
  }

  static const Library& Get() {
    static const Library* const library = new Library;
    return *library;
  }

  OptionalLibrary file;
  Gemm gemm;
  BatchedGemm batched_gemm;
  Gemv gemv;
  Convgemm convgemm;
  // OpenCL's, which TVM's runtime does not know.
  Fill fill;
};

// A tensor as CLBlast takes it.
struct Buffer {
  explicit Buffer(const DLTensor* tensor) {
    ICHECK(tensor->device.device_type == kDLOpenCL && tensor->data != nullptr)
        << "CLBlast was given a tensor that is not in a device's memory";
    ICHECK(tensor->dtype.code == kDLFloat && tensor->dtype.bits == 32 && tensor->strides == nullptr)
        << "CLBlast was given a tensor of another type than it was compiled for";
    const auto* descriptor = static_cast<const cl::BufferDescriptor*>(tensor->data);
    ICHECK(descriptor->layout == cl::BufferDescriptor::MemoryLayout::kBuffer1D)
        << "CLBlast takes no textures";
    memory = descriptor->buffer;
    offset = tensor->byte_offset / sizeof(float);
  }

  cl_mem memory;
  size_t offset;
};

// One call.
class Call {
 public:
  explicit Call(const std::string& line) {
    std::istringstream words(line);
    words >> name_;
    for (size_t number; words >> number;) numbers_.push_back(number);
    constexpr std::array<std::pair<const char*, size_t>, 3> known = {
        {{"gemm", 10}, {"gemv", 4}, {"convgemm", 15}}};
    for (const auto& [name, count] : known) {
      if (name_ == name && numbers_.size() == count && words.eof()) return;
    }
    throw std::runtime_error(
        "a call of CLBlast was written by another version of Collage, or the file is damaged; "
        "compile the model again");
  }

  void operator()(const TVMArgs& args) const {
    const Library& library = Library::Get();
    const auto argument = [&](size_t at) {
      ICHECK_LT(at, static_cast<size_t>(args.size()));
      return Buffer(args[static_cast<int>(at)].operator DLTensor*());
    };
    const size_t last = static_cast<size_t>(args.size()) - 1;
    const Buffer result = argument(last);
    const DLDevice device = args[static_cast<int>(last)].operator DLTensor*()->device;
    cl_command_queue queue = cl::OpenCLWorkspace::Global()->GetQueue(device);
    const std::vector<size_t>& n = numbers_;
    int status;
    if (name_ == "gemv") {
      const Buffer matrix = argument(n[2]), vector = argument(n[3]);
      // CLBlast multiplies what the result's memory holds by beta here (its other kernels do not read it
      // where beta is 0): a NaN that somebody left there would stay.
      const float zero = 0.0F;
      OPENCL_CALL(library.fill(queue, result.memory, &zero, sizeof(zero), result.offset * sizeof(float),
                               n[0] * sizeof(float), 0, nullptr, nullptr));
      status = library.gemv(kRowMajor, kAsItIs, n[0], n[1], 1.0F, matrix.memory, matrix.offset, n[1],
                            vector.memory, vector.offset, 1, 0.0F, result.memory, result.offset, 1, &queue,
                            nullptr);
    } else if (name_ == "convgemm") {
      const Buffer data = argument(n[13]), weight = argument(n[14]);
      status = library.convgemm(kCrossCorrelation, n[1], n[2], n[3], n[5], n[6], n[7], n[8], n[9], n[10],
                                n[11], n[12], n[4], n[0], data.memory, data.offset, weight.memory,
                                weight.offset, result.memory, result.offset, &queue, nullptr);
    } else {
      const Buffer left = argument(n[6]), right = argument(n[7]);
      const size_t rows = n[0], columns = n[1], inner = n[2], batch = n[3];
      const int left_form = n[4] != 0 ? kTransposed : kAsItIs, right_form = n[5] != 0 ? kTransposed : kAsItIs;
      const size_t left_row = n[4] != 0 ? rows : inner, right_row = n[5] != 0 ? inner : columns;
      status = batch == 1
                   ? library.gemm(kRowMajor, left_form, right_form, rows, columns, inner, 1.0F, left.memory,
                                  left.offset, left_row, right.memory, right.offset, right_row, 0.0F,
                                  result.memory, result.offset, columns, &queue, nullptr)
                   : library.batched_gemm(kRowMajor, left_form, right_form, rows, columns, inner, 1.0F,
                                          left.memory, left.offset, left_row, n[8], right.memory,
                                          right.offset, right_row, n[9], 0.0F, result.memory, result.offset,
                                          columns, rows * columns, batch, &queue, nullptr);
    }
    ICHECK_EQ(status, kSuccess) << "CLBlast refuses " << name_ << " with its error " << status
                                << " (clblast_c.h says what that is)";
  }

 private:
  std::string name_;
  std::vector<size_t> numbers_;
};

const device::Calls calls = {
    "collage_clblast",
    "CLBlast",
    0x3154534C42434C43,  // "CLCBLST1"
    [](const std::string& text) -> device::Call { return Call(text); },
    [] { Library::Get(); },
};

// The module of one call: the symbol under which TVM calls it, and the line that says what it is.
TVM_REGISTER_GLOBAL("collage.runtime.opencl.ClblastCreate")
    .set_body_typed([](std::string symbol, std::string line) {
      return device::MakeCall(calls, symbol, line);
    });

// What TVM loads such a module with.
TVM_REGISTER_GLOBAL("runtime.module.loadbinary_collage_clblast").set_body_typed([](void* stream) {
  return device::LoadCall(calls, stream);
});

}  // namespace
}  // namespace opencl
}  // namespace collage
