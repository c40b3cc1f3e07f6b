// SPDX-License-Identifier: Apache-2.0
//
// TVM's graph executors whose weights are held once by all copies of a model in a process, and by models that
// have weights in common (shared_constants.h). TVM's own way of opening a model gives each executor a set.
//
// The arrays that came with the model are put where the executor looks for weights that are linked into the
// library, so that nothing is copied and no room is made for a second set. A run writes to no weight: what
// the graph's operators write lies elsewhere. Where it does not (the plan of memory is the file's, which may
// be anybody's), and where a weight is a result, to which callers may write, the weight is not shared.
#include <malloc.h>
#include <picojson.h>
#include <tvm/runtime/container/map.h>
#include <tvm/runtime/container/string.h>
#include <tvm/runtime/data_type.h>
#include <tvm/runtime/device_api.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/ndarray.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "shared_constants.h"

namespace collage {
namespace {

using tvm::runtime::Map;
using tvm::runtime::Module;
using tvm::runtime::NDArray;
using tvm::runtime::PackedFunc;
using tvm::runtime::Registry;
using tvm::runtime::String;
using tvm::runtime::TVMArgs;
using tvm::runtime::TVMRetValue;
using Parameters = Map<String, NDArray>;

// A graph in the JSON of TVM's executor, as far as it says whose memory is whose. Anything else in its place
// is refused by picojson or here, in words.
class MemoryPlan {
 public:
  explicit MemoryPlan(const std::string& text) {
    picojson::value graph;
    const std::string error = picojson::parse(graph, text);
    ICHECK(error.empty() && graph.is<picojson::object>()) << "the model's graph is no JSON object: " << error;
    const picojson::array& nodes = List(graph, "nodes");
    const picojson::array& rows = List(graph, "node_row_ptr");
    const picojson::array& storage = AsList(Element(Of(Of(graph, "attrs"), "storage_id"), 1));
    ICHECK_GT(rows.size(), nodes.size()) << "the model's graph has too few rows";
    const auto memory_of = [&](int64_t node, int64_t index) {
      ICHECK(node >= 0 && node < static_cast<int64_t>(nodes.size()) && index >= 0)
          << "the model's graph names the result " << index << " of a node " << node << " and has "
          << nodes.size();
      const int64_t value = Number(rows[node]) + index;
      ICHECK(value >= 0 && value < static_cast<int64_t>(storage.size()))
          << "the model's graph says of no memory where the result " << index << " of node " << node
          << " lies";
      return Number(storage[value]);
    };
    std::set<int64_t> written;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const auto node = static_cast<int64_t>(i);
      if (Text(nodes[i], "op") == "null") {
        // Two in one memory: neither may be what the other was given.
        const int64_t memory = memory_of(node, 0);
        if (!arguments_.emplace(memory, Text(nodes[i], "name")).second) written.insert(memory);
      } else {  // or says that its result is its argument, seen in another way
        for (int64_t k = 0; k < Number(rows[i + 1]) - Number(rows[i]); ++k)
          written.insert(memory_of(node, k));
      }
    }
    for (const picojson::value& head : List(graph, "heads")) {
      written.insert(memory_of(Number(Element(head, 0)), Number(Element(head, 1))));
    }
    for (const int64_t memory : written) arguments_.erase(memory);
  }

  // {the number of a memory: the argument that lies there}, of memories that nobody writes to.
  const std::unordered_map<int64_t, std::string>& arguments() const { return arguments_; }

 private:
  static const picojson::value& Of(const picojson::value& object, const std::string& key) {
    ICHECK(object.is<picojson::object>() && object.contains(key))
        << "the model's graph does not say of something its " << key;
    return object.get(key);
  }
  static const picojson::array& List(const picojson::value& object, const std::string& key) {
    return AsList(Of(object, key));
  }
  static const picojson::array& AsList(const picojson::value& list) {
    ICHECK(list.is<picojson::array>()) << "the model's graph has something else in the place of a list";
    return list.get<picojson::array>();
  }
  static const picojson::value& Element(const picojson::value& list, size_t i) {
    ICHECK(list.is<picojson::array>() && i < list.get<picojson::array>().size())
        << "a list of the model's graph is too short";
    return list.get<picojson::array>()[i];
  }
  static int64_t Number(const picojson::value& number) {
    ICHECK(number.is<double>()) << "the model's graph has something else in the place of a number";
    return static_cast<int64_t>(number.get<double>());
  }
  static std::string Text(const picojson::value& object, const std::string& key) {
    const picojson::value& text = Of(object, key);
    ICHECK(text.is<std::string>()) << "the model's graph has no text for " << key;
    return text.get<std::string>();
  }

  std::unordered_map<int64_t, std::string> arguments_;
};

// Gives back to the system what the heap has no use for any more: the arrays of a copy are freed in between
// those of others, and would stay (RATIONALE.md says the same of engines).
void Trim() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

// Held by all arrays of an executor; goes behind the last of them.
struct TrimsAtTheEnd {
  TrimsAtTheEnd() = default;
  TrimsAtTheEnd(const TrimsAtTheEnd&) = delete;
  TrimsAtTheEnd& operator=(const TrimsAtTheEnd&) = delete;
  ~TrimsAtTheEnd() { Trim(); }
};

// An array of the same bytes in memory that all who have the same hold together.
NDArray SharedArray(const NDArray& array, const std::shared_ptr<TrimsAtTheEnd>& end) {
  if (array->device.device_type != kDLCPU || !array.IsContiguous()) return array;
  const size_t bytes = tvm::runtime::GetDataSize(*array.operator->());
  auto* const data = static_cast<char*>(array->data) + array->byte_offset;
  struct Held {
    std::shared_ptr<TrimsAtTheEnd> end;  // before the memory, to go behind it
    std::shared_ptr<void> memory;
    std::vector<int64_t> shape;
    DLManagedTensor tensor;
  };
  auto held = std::make_unique<Held>();
  held->end = end;
  // The array goes when the last one lets go, though the table of pieces keeps what it knows of it for
  // longer.
  const std::shared_ptr<void> made(data, [kept = NDArray(array)](void*) mutable { kept = NDArray(); });
  held->memory = Shared(made, bytes);
  // An engine that made the same may need less than TVM's code does.
  if (reinterpret_cast<uintptr_t>(held->memory.get()) % tvm::runtime::kAllocAlignment != 0)
    held->memory = made;
  held->shape.assign(array->shape, array->shape + array->ndim);
  held->tensor.dl_tensor = *array.operator->();
  held->tensor.dl_tensor.data = held->memory.get();
  held->tensor.dl_tensor.byte_offset = 0;
  held->tensor.dl_tensor.shape = held->shape.data();
  held->tensor.dl_tensor.strides = nullptr;
  held->tensor.manager_ctx = held.get();
  held->tensor.deleter = [](DLManagedTensor* tensor) { delete static_cast<Held*>(tensor->manager_ctx); };
  return NDArray::FromDLPack(&held.release()->tensor);
}

bool SameForm(const DLTensor& a, const DLTensor& b) {
  return a.ndim == b.ndim && std::equal(a.shape, a.shape + a.ndim, b.shape) &&
         tvm::runtime::DataType(a.dtype) == tvm::runtime::DataType(b.dtype);
}

const PackedFunc& Global(const char* name) {
  const PackedFunc* const function = Registry::Get(name);
  ICHECK(function != nullptr) << "this runtime of TVM has no " << name;
  return *function;
}

// The executor of a graph whose functions are in a library.
Module Create(const String& graph, const Module& library, const Parameters& parameters, int device_type,
              int device_id) {
  ICHECK(device_type == kDLCPU) << "weights are shared in the processor's memory only";
  // The executor keeps the function that it asks, and asks only while it is made.
  struct Offer {
    std::unordered_map<int64_t, std::string> arguments;
    Parameters parameters;
    std::set<std::string> taken;
  };
  const auto offer = std::make_shared<Offer>();
  offer->arguments = MemoryPlan(graph).arguments();
  offer->parameters = parameters;
  const auto end = std::make_shared<TrimsAtTheEnd>();
  const PackedFunc find(
      [offer, end = std::weak_ptr<TrimsAtTheEnd>(end)](TVMArgs arguments, TVMRetValue* result) {
        *result = nullptr;
        const auto argument = offer->arguments.find(arguments[1].operator int64_t());
        if (argument == offer->arguments.end() || offer->parameters.count(argument->second) == 0) return;
        const NDArray array = offer->parameters[argument->second];
        // What is of another form than the graph says is set below, and refused there.
        const auto* const wanted = arguments[2].operator DLTensor*();
        if (!SameForm(*array.operator->(), *wanted)) return;
        offer->taken.insert(argument->second);
        *result = SharedArray(array, end.lock());
      });
  Module executor = Global("tvm.graph_executor.create")(graph, library, find, device_type, device_id);
  const PackedFunc set = executor->GetFunction("set_input"), index = executor->GetFunction("get_input_index");
  for (const auto& [name, array] : parameters) {
    if (offer->taken.count(name) == 0 && index(name).operator int() >= 0) set(name, array);
  }
  *offer = {};
  return executor;
}

// Takes a library with TVM's executor factory in it, a device's type and its number, and gives the executor,
// which shares its weights with others of the same model.
TVM_REGISTER_GLOBAL("collage.runtime.Open")
    .set_body_typed([](Module factory, int device_type, int device_id) -> Module {
      ICHECK_EQ(factory->imports().size(), 1) << "an executor factory has one library";
      const Parameters parameters = factory.GetFunction("get_graph_params")();
      const String graph = factory.GetFunction("get_graph_json")();
      return Create(graph, factory->imports()[0], parameters, device_type, device_id);
    });

// Gives free memory back to the system: for loaders, when they have let go of what a model came in.
TVM_REGISTER_GLOBAL("collage.runtime.Trim").set_body_typed(Trim);

// As Open, of a graph, a library and weights by their names, as runtime.LoadParams gives them.
TVM_REGISTER_GLOBAL("collage.runtime.OpenParts").set_body_typed(Create);

}  // namespace
}  // namespace collage
