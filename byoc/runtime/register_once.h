// SPDX-License-Identifier: Apache-2.0
//
// Included ahead of TVM's own sources, which are compiled unchanged. A TVM that was built with oneDNN or
// OpenCL has their packed functions already; registering them a second time would end the process while the
// plug-in is being loaded. Here the one that came first stays.
#ifndef COLLAGE_REGISTER_ONCE_H_
#define COLLAGE_REGISTER_ONCE_H_

#include <tvm/runtime/registry.h>

namespace collage {

inline ::tvm::runtime::Registry& RegisterOnce(const char* name) {
  if (::tvm::runtime::Registry::Get(name) != nullptr) {
    return *new ::tvm::runtime::Registry;  // takes the body and is found by nobody
  }
  return ::tvm::runtime::Registry::Register(name);
}

}  // namespace collage

#undef TVM_REGISTER_GLOBAL
#define TVM_REGISTER_GLOBAL(OpName) \
  TVM_STR_CONCAT(TVM_FUNC_REG_VAR_DEF, __COUNTER__) = ::collage::RegisterOnce(OpName)

#endif  // COLLAGE_REGISTER_ONCE_H_
