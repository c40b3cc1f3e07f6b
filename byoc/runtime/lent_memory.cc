// SPDX-License-Identifier: Apache-2.0
//
// Inputs that are read where they are. In: a shape and a type. Out: an NDArray that is to be told where its
// elements lie. TVM's own ways to make one of somebody else's memory refuse what is not aligned as its
// kernels want it; regions take any, and an array of numpy's hardly ever is.
#include <tvm/runtime/ndarray.h>
#include <tvm/runtime/registry.h>

#include <string>
#include <utility>

namespace collage {

// An NDArray on the processor without elements, of a type and a shape: whoever has it says where they are
// (its DLTensor's data), one behind the other, before each use, and whose they are they stay.
TVM_REGISTER_GLOBAL("collage.runtime.Lent")
    .set_body_typed([](std::string type, tvm::runtime::ShapeTuple shape) {
      using tvm::runtime::NDArray;
      auto* const container = new NDArray::Container(nullptr, std::move(shape),
                                                     tvm::runtime::String2DLDataType(type), {kDLCPU, 0});
      container->SetDeleter(
          [](tvm::runtime::Object* object) { delete static_cast<NDArray::Container*>(object); });
      return NDArray(tvm::runtime::GetObjectPtr<tvm::runtime::Object>(container));
    });

}  // namespace collage
