// SPDX-License-Identifier: Apache-2.0
//
// Inputs that are read where they are. In: where a caller's elements lie, and their shape and type. Out: an
// NDArray over them. TVM's own ways to make one refuse memory that is not aligned as its kernels want it; regions
// take any, and an array of numpy's hardly ever is.
#include <tvm/runtime/ndarray.h>
#include <tvm/runtime/registry.h>

#include <string>
#include <utility>

namespace collage {

// An NDArray on the processor over a caller's memory, which is the caller's: it must stay for as long as the NDArray, or
// what was made of it, is used. Its elements lie one behind the other. Takes the address, the type and the shape.
TVM_REGISTER_GLOBAL("collage.runtime.Lent")
    .set_body_typed([](void* data, std::string type, tvm::runtime::ShapeTuple shape) {
      using tvm::runtime::NDArray;
      auto* const container =
          new NDArray::Container(data, std::move(shape), tvm::runtime::String2DLDataType(type), {kDLCPU, 0});
      container->SetDeleter(
          [](tvm::runtime::Object* object) { delete static_cast<NDArray::Container*>(object); });
      return NDArray(tvm::runtime::GetObjectPtr<tvm::runtime::Object>(container));
    });

}  // namespace collage
