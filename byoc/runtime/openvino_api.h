// SPDX-License-Identifier: Apache-2.0
//
// What is used of OpenVINO's C interface (openvino/c/*.h), declared here so that the plug-in is built
// without OpenVINO, and found in its library when the first region is made.
#ifndef COLLAGE_OPENVINO_API_H_
#define COLLAGE_OPENVINO_API_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace collage {
namespace openvino {

// OpenVINO's own types; what lies behind the pointers is its business.
struct Core;
struct Model;
struct CompiledModel;
struct InferRequest;
struct Tensor;

// ov_element_type_e, as far as regions have such tensors.
enum ElementType : int { kBoolean = 1, kF32 = 4, kI8 = 7, kI32 = 9, kI64 = 10, kU8 = 16 };

// ov_shape_t; passed by value.
struct Shape {
  int64_t rank;
  const int64_t* dims;
};

// ov_version_t.
struct Version {
  const char* build_number;
  const char* description;
};

// ov_profiling_info_t: what a node of the compiled model has taken on the average of all runs, in
// microseconds.
struct ProfilingInfo {
  int status;
  int64_t real_time, cpu_time;
  const char *node_name, *exec_type, *node_type;
};

// ov_profiling_info_list_t.
struct ProfilingInfoList {
  ProfilingInfo* infos;
  size_t size;
};

// ov_status_e: 0 is success.
using Status = int;

// The functions, each under the name that follows "ov_". The library stays open for the life of the process.
struct Api {
  // Opens OpenVINO. Throws std::runtime_error that says where was looked and what to do.
  Api();

  // Throws std::runtime_error with OpenVINO's own words where a call has failed; what says what was
  // tried.
  void Check(Status status, const char* what) const;

  Status (*core_create)(Core**);
  Status (*core_read_model_from_memory_buffer)(const Core*, const char* xml, size_t size,
                                               const Tensor* weights, Model**);
  // properties counts the texts that follow, names and values in turn.
  Status (*core_compile_model)(const Core*, const Model*, const char* device, size_t properties,
                               CompiledModel**, ...);
  Status (*compiled_model_create_infer_request)(const CompiledModel*, InferRequest**);
  Status (*compiled_model_inputs_size)(const CompiledModel*, size_t*);
  Status (*compiled_model_outputs_size)(const CompiledModel*, size_t*);
  Status (*tensor_create)(ElementType, Shape, Tensor**);
  Status (*tensor_create_from_host_ptr)(ElementType, Shape, void* data, Tensor**);
  Status (*tensor_data)(const Tensor*, void**);
  Status (*infer_request_set_input_tensor_by_index)(InferRequest*, size_t, const Tensor*);
  Status (*infer_request_set_output_tensor_by_index)(InferRequest*, size_t, const Tensor*);
  Status (*infer_request_infer)(InferRequest*);
  Status (*infer_request_get_profiling_info)(const InferRequest*, ProfilingInfoList*);
  void (*profiling_info_list_free)(ProfilingInfoList*);
  Status (*get_openvino_version)(Version*);
  void (*version_free)(Version*);
  void (*model_free)(Model*);
  void (*compiled_model_free)(CompiledModel*);
  void (*infer_request_free)(InferRequest*);
  void (*tensor_free)(Tensor*);
  const char* (*get_error_info)(Status);
  const char* (*get_last_err_msg)();
};

}  // namespace openvino
}  // namespace collage

#endif  // COLLAGE_OPENVINO_API_H_
