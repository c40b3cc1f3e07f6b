// SPDX-License-Identifier: Apache-2.0
#include "device_call.h"

#include <dmlc/io.h>
#include <tvm/runtime/registry.h>

#include <utility>

#include "checked_stream.h"
#include "device_kind.h"

namespace collage {
namespace device {
namespace {

using tvm::runtime::Module;
using tvm::runtime::ModuleNode;
using tvm::runtime::Object;
using tvm::runtime::ObjectPtr;
using tvm::runtime::PackedFunc;
using tvm::runtime::String;
using tvm::runtime::TVMArgs;
using tvm::runtime::TVMRetValue;

class CallModuleNode final : public ModuleNode {
 public:
  CallModuleNode(const Calls& of, std::string symbol, std::string text)
      : of_(of), symbol_(std::move(symbol)), text_(std::move(text)), call_(of.make(text_)) {}

  const char* type_key() const final { return of_.type; }
  int GetPropertyMask() const final { return tvm::runtime::kBinarySerializable | tvm::runtime::kRunnable; }

  PackedFunc GetFunction(const String& name, const ObjectPtr<Object>& self) final {
    if (name != symbol_) return nullptr;
    return PackedFunc([this, self](TVMArgs args, TVMRetValue*) { Told([&] { call_(args); }); });
  }

  bool ImplementsFunction(const String& name, bool) final { return name == symbol_; }

  void SaveToBinary(dmlc::Stream* stream) final {
    CheckedWriter writer(stream);
    writer.Number(of_.form);
    writer.Text(symbol_);
    writer.Text(text_);
    writer.Seal();
  }

 private:
  const Calls& of_;
  const std::string symbol_, text_;
  const Call call_;
};

}  // namespace

Module MakeCall(const Calls& of, const std::string& symbol, const std::string& text) {
  return Told([&] { return Module(tvm::runtime::make_object<CallModuleNode>(of, symbol, text)); });
}

Module LoadCall(const Calls& of, void* stream) {
  CheckedReader reader(static_cast<dmlc::Stream*>(stream));
  uint64_t form = 0;
  std::string symbol, text;
  ICHECK(reader.Number(&form) && form == of.form && reader.Text(&symbol) && reader.Text(&text) &&
         reader.Sealed())
      << "a call of " << of.title
      << " was written by another version of Collage, or the file is damaged; compile the model again";
  Told(of.open);
  return MakeCall(of, symbol, text);
}

}  // namespace device
}  // namespace collage
