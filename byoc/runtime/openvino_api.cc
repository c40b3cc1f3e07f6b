// SPDX-License-Identifier: Apache-2.0
#include "openvino_api.h"

#include <stdexcept>

#include "optional_library.h"

namespace collage {
namespace openvino {

Api::Api() {
  static const LibraryPlaces places{"OpenVINO",
                                    "pip install openvino==2026.4.1",
                                    "COLLAGE_OPENVINO_LIBRARY",
                                    {"openvino/libs/libopenvino_c.so*"},
                                    {"lib/libopenvino_c.so*"},
                                    {"libopenvino_c.so.2641", "libopenvino_c.so"}};
  const OptionalLibrary library(places);
  library.Get("ov_core_create", &core_create);
  library.Get("ov_core_read_model_from_memory_buffer", &core_read_model_from_memory_buffer);
  library.Get("ov_core_compile_model", &core_compile_model);
  library.Get("ov_compiled_model_create_infer_request", &compiled_model_create_infer_request);
  library.Get("ov_compiled_model_inputs_size", &compiled_model_inputs_size);
  library.Get("ov_compiled_model_outputs_size", &compiled_model_outputs_size);
  library.Get("ov_tensor_create", &tensor_create);
  library.Get("ov_tensor_create_from_host_ptr", &tensor_create_from_host_ptr);
  library.Get("ov_tensor_data", &tensor_data);
  library.Get("ov_infer_request_set_input_tensor_by_index", &infer_request_set_input_tensor_by_index);
  library.Get("ov_infer_request_set_output_tensor_by_index", &infer_request_set_output_tensor_by_index);
  library.Get("ov_infer_request_infer", &infer_request_infer);
  library.Get("ov_infer_request_get_profiling_info", &infer_request_get_profiling_info);
  library.Get("ov_profiling_info_list_free", &profiling_info_list_free);
  library.Get("ov_get_openvino_version", &get_openvino_version);
  library.Get("ov_version_free", &version_free);
  library.Get("ov_model_free", &model_free);
  library.Get("ov_compiled_model_free", &compiled_model_free);
  library.Get("ov_infer_request_free", &infer_request_free);
  library.Get("ov_tensor_free", &tensor_free);
  library.Get("ov_get_error_info", &get_error_info);
  // Old versions lack it and say less.
  get_last_err_msg = library.Find<decltype(get_last_err_msg)>("ov_get_last_err_msg");
}

void Api::Check(Status status, const char* what) const {
  if (status == 0) return;
  std::string text = std::string("OpenVINO cannot ") + what + ": " + get_error_info(status);
  const char* said = get_last_err_msg != nullptr ? get_last_err_msg() : nullptr;
  if (said != nullptr && *said != '\0') text += std::string(" (") + said + ")";
  throw std::runtime_error(text);
}

}  // namespace openvino
}  // namespace collage
