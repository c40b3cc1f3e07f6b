// SPDX-License-Identifier: Apache-2.0
//
// Included ahead of TVM's dnnl_json_runtime.cc, after register_once.h. Its two packed functions, which make
// and load modules, are registered by dnnl_tvm_module.cc, with modules of our own around TVM's. So here they
// are made and found by nobody.
#ifndef COLLAGE_DNNL_TVM_UNREGISTERED_H_
#define COLLAGE_DNNL_TVM_UNREGISTERED_H_

#include <tvm/runtime/registry.h>

#undef TVM_REGISTER_GLOBAL
#define TVM_REGISTER_GLOBAL(OpName) \
  TVM_STR_CONCAT(TVM_FUNC_REG_VAR_DEF, __COUNTER__) = (*new ::tvm::runtime::Registry)

#endif  // COLLAGE_DNNL_TVM_UNREGISTERED_H_
