// SPDX-License-Identifier: Apache-2.0
//
// Brings oneDNN into the arena. oneDNN's oneTBB flavour asks for the number of threads of the arena that
// it is called in, when it chooses a kernel and again when the kernel runs. TVM's runtime calls it from
// outside any arena; since its sources stay as they are, the linker leads its calls (--wrap) here.
#include <dnnl.h>
#include <tvm/runtime/registry.h>

#include <string>
#include <utility>

#include "collage_runtime.h"
#include "needs.h"

namespace {

template <typename Call>
dnnl_status_t InArena(Call call) {
  std::pair<Call*, dnnl_status_t> state(&call, dnnl_runtime_error);
  collage_run_in_arena(
      [](void* data) {
        auto* s = static_cast<decltype(state)*>(data);
        s->second = (*s->first)();
      },
      &state);
  return state.second;
}

}  // namespace

extern "C" {

dnnl_status_t __real_dnnl_primitive_desc_iterator_create(dnnl_primitive_desc_iterator_t*,
                                                         const_dnnl_op_desc_t, const_dnnl_primitive_attr_t,
                                                         dnnl_engine_t, const_dnnl_primitive_desc_t);
dnnl_status_t __wrap_dnnl_primitive_desc_iterator_create(dnnl_primitive_desc_iterator_t* iterator,
                                                         const_dnnl_op_desc_t op_desc,
                                                         const_dnnl_primitive_attr_t attr,
                                                         dnnl_engine_t engine,
                                                         const_dnnl_primitive_desc_t hint) {
  return InArena(
      [=] { return __real_dnnl_primitive_desc_iterator_create(iterator, op_desc, attr, engine, hint); });
}

dnnl_status_t __real_dnnl_reorder_primitive_desc_create(dnnl_primitive_desc_t*, const dnnl_memory_desc_t*,
                                                        dnnl_engine_t, const dnnl_memory_desc_t*,
                                                        dnnl_engine_t, const_dnnl_primitive_attr_t);
dnnl_status_t __wrap_dnnl_reorder_primitive_desc_create(dnnl_primitive_desc_t* desc,
                                                        const dnnl_memory_desc_t* from,
                                                        dnnl_engine_t from_engine,
                                                        const dnnl_memory_desc_t* to, dnnl_engine_t to_engine,
                                                        const_dnnl_primitive_attr_t attr) {
  return InArena([=] {
    return __real_dnnl_reorder_primitive_desc_create(desc, from, from_engine, to, to_engine, attr);
  });
}

dnnl_status_t __real_dnnl_primitive_create(dnnl_primitive_t*, const_dnnl_primitive_desc_t);
dnnl_status_t __wrap_dnnl_primitive_create(dnnl_primitive_t* primitive, const_dnnl_primitive_desc_t desc) {
  return InArena([=] { return __real_dnnl_primitive_create(primitive, desc); });
}

dnnl_status_t __real_dnnl_primitive_execute(const_dnnl_primitive_t, dnnl_stream_t, int,
                                            const dnnl_exec_arg_t*);
dnnl_status_t __wrap_dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream, int nargs,
                                            const dnnl_exec_arg_t* args) {
  return InArena([=] { return __real_dnnl_primitive_execute(primitive, stream, nargs, args); });
}

}  // extern "C"

namespace {

std::string LibraryVersion() {
  const dnnl_version_t* v = dnnl_version();
  return std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
}

[[maybe_unused]] const bool registered = [] {
  collage::RegisterPlugin("dnnl_tvm", {"oneDNN", LibraryVersion, 0});
  return true;
}();

}  // namespace

TVM_REGISTER_GLOBAL("collage.runtime.DNNLVersion").set_body_typed([]() -> tvm::runtime::String {
  return LibraryVersion();
});
