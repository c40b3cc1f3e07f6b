// SPDX-License-Identifier: Apache-2.0
#include "needs.h"

#include <dmlc/io.h>
#include <tvm/runtime/module.h>
#include <tvm/runtime/packed_func.h>
#include <tvm/runtime/registry.h>

#include <cctype>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "checked_stream.h"
#include "processor_features.h"

namespace collage {

using tvm::runtime::ModuleNode;
using tvm::runtime::Object;
using tvm::runtime::ObjectPtr;
using tvm::runtime::PackedFunc;
using tvm::runtime::String;
using tvm::runtime::TVMArgs;
using tvm::runtime::TVMRetValue;

namespace {

constexpr const char* kFirstLine = "collage-needs 1";

struct Plugins {
  std::mutex mutex;
  std::map<std::string, Plugin> by_name;

  std::optional<Plugin> Find(const std::string& name) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = by_name.find(name);
    return found == by_name.end() ? std::nullopt : std::optional<Plugin>(found->second);
  }
};

Plugins& AllPlugins() {
  static auto* const plugins = new Plugins;
  return *plugins;
}

struct Version {
  int major = 0, minor = 0;
  bool operator<(const Version& other) const {
    return major != other.major ? major < other.major : minor < other.minor;
  }
  std::string Text() const { return std::to_string(major) + "." + std::to_string(minor); }
};

// The first "number.number" of a text.
Version VersionIn(const std::string& text) {
  for (size_t at = 0; at < text.size(); ++at) {
    Version version;
    const auto digit = [&](size_t i) { return std::isdigit(static_cast<unsigned char>(text[i])) != 0; };
    const bool begins = digit(at) && (at == 0 || (!digit(at - 1) && text[at - 1] != '.'));
    if (begins && std::sscanf(text.c_str() + at, "%5d.%5d", &version.major, &version.minor) == 2)
      return version;
  }
  throw std::runtime_error("there is no version in \"" + text + "\"");
}

[[noreturn]] void Refuse(const std::string& why) {
  throw tvm::runtime::InternalError(__FILE__, __LINE__, "this model " + why);
}

// "a", "a and b", "a, b, c and 5 more".
std::string Listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  std::string text;
  const size_t shown = names.size() > kShown + 1 ? kShown : names.size();
  for (size_t i = 0; i < shown; ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  if (shown < names.size()) text += " and " + std::to_string(names.size() - shown) + " more";
  return text;
}

void CheckFeatures(const std::vector<std::string>& features) {
  std::vector<std::string> missing;
  for (const std::string& feature : features) {
    if (!ProcessorHas(feature)) missing.push_back(feature);
  }
  if (missing.empty()) return;
  const std::string level = BestProcessorLevel();
  Refuse("needs " + Listed(missing) + ", which " + ThisProcessor() +
         " does not have; compile it with --target " + (level.empty() ? "for this machine" : level));
}

void CheckLibrary(const std::string& name, const std::string& wanted, const std::string& title) {
  const std::optional<Plugin> plugin = AllPlugins().Find(name);
  if (!plugin) {
    Refuse("needs the plug-in libcollage_" + name + ".so of the version of Collage that compiled it (for " +
           title + "); what is here is older");
  }
  std::string here;
  try {
    here = plugin->library_version();
  } catch (const std::exception& error) {
    Refuse("needs " + title + " " + wanted + " or later: " + error.what());
  }
  if (VersionIn(here) < VersionIn(wanted)) {
    Refuse("needs " + title + " " + VersionIn(wanted).Text() + " or later; " + VersionIn(here).Text() +
           " is here. Install that version, or compile the model with this one");
  }
}

void CheckProgram(const std::string& name, int form) {
  const std::optional<Plugin> plugin = AllPlugins().Find(name);
  if (plugin && plugin->program_form >= form) return;
  Refuse("needs a plug-in libcollage_" + name + ".so that reads programs of form " + std::to_string(form) +
         "; this one reads " + std::to_string(plugin ? plugin->program_form : 0) +
         ". Install the version of Collage that compiled the model, or compile it again");
}

}  // namespace

void RegisterPlugin(const std::string& name, const Plugin& plugin) {
  Plugins& plugins = AllPlugins();
  const std::lock_guard<std::mutex> lock(plugins.mutex);
  plugins.by_name.emplace(name, plugin);
}

std::string NeedsOfPlugin(const std::string& name) {
  const std::optional<Plugin> plugin = AllPlugins().Find(name);
  if (!plugin) return "";
  std::string text;
  try {
    text = "library " + name + " " + VersionIn(plugin->library_version()).Text() + " " + plugin->title + "\n";
  } catch (const std::exception&) {
    // A model may be compiled for a library that is not here.
  }
  if (plugin->program_form > 0) {
    text += "program " + name + " " + std::to_string(plugin->program_form) + "\n";
  }
  return text;
}

void CheckNeeds(const std::string& needs) {
  std::istringstream lines(needs);
  std::string line;
  if (!std::getline(lines, line) || line != kFirstLine) {
    Refuse("was written by a later version of Collage (it says \"" + line.substr(0, 40) +
           "\" of its needs); install that, or compile the model with this one");
  }
  std::vector<std::string> features;
  struct Library {
    std::string plugin, version, title;
  };
  std::vector<Library> libraries;
  std::vector<std::pair<std::string, int>> programs;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string kind, name;
    words >> kind >> name;
    bool known = !name.empty();
    if (kind == "feature") {
      features.push_back(name);
    } else if (kind == "library") {
      Library library{name, "", ""};
      known = static_cast<bool>(std::getline(words >> library.version >> std::ws, library.title));
      libraries.push_back(library);
    } else if (kind == "program") {
      int form = 0;
      known = static_cast<bool>(words >> form);
      programs.emplace_back(name, form);
    } else {
      known = false;
    }
    if (!known) Refuse("needs \"" + line + "\", which this version of Collage does not know");
  }
  // The processor first: it is what nobody can install.
  CheckFeatures(features);
  for (const auto& [plugin, form] : programs) CheckProgram(plugin, form);
  for (const Library& library : libraries) CheckLibrary(library.plugin, library.version, library.title);
}

namespace {

// Begins the saved form; what follows is the text.
constexpr uint64_t kFormat = 0x314445454E4C4C43;  // "CLLNEED1"

class NeedsModuleNode final : public ModuleNode {
 public:
  explicit NeedsModuleNode(std::string needs) : needs_(std::move(needs)) {}

  const char* type_key() const final { return "collage_needs"; }

  int GetPropertyMask() const final { return tvm::runtime::ModulePropertyMask::kBinarySerializable; }

  PackedFunc GetFunction(const String& name, const ObjectPtr<Object>& self) final {
    if (name != "collage_needs") return PackedFunc();
    return PackedFunc([self, this](TVMArgs, TVMRetValue* result) { *result = needs_; });
  }

  void SaveToBinary(dmlc::Stream* stream) final {
    CheckedWriter writer(stream);
    writer.Number(kFormat);
    writer.Text(needs_);
    writer.Seal();
  }

 private:
  const std::string needs_;
};

tvm::runtime::Module LoadNeedsModule(void* opaque_stream) {
  CheckedReader reader(static_cast<dmlc::Stream*>(opaque_stream));
  uint64_t format = 0;
  std::string needs;
  if (!reader.Number(&format) || format != kFormat || !reader.Text(&needs) || !reader.Sealed()) {
    Refuse(
        "says what it needs in another way than this version of Collage does, or the file is damaged; "
        "compile "
        "it again");
  }
  CheckNeeds(needs);
  return tvm::runtime::Module(tvm::runtime::make_object<NeedsModuleNode>(std::move(needs)));
}

}  // namespace

// Takes what a model needs (a line each, as its ELF note has them) and gives the module that checks it when
// it is loaded.
TVM_REGISTER_GLOBAL("collage.runtime.NeedsModuleCreate").set_body_typed([](const String& needs) {
  return tvm::runtime::Module(tvm::runtime::make_object<NeedsModuleNode>(std::string(needs)));
});
TVM_REGISTER_GLOBAL("runtime.module.loadbinary_collage_needs").set_body_typed(LoadNeedsModule);
// Takes such lines; an error names what this machine has not.
TVM_REGISTER_GLOBAL("collage.runtime.CheckNeeds").set_body_typed([](const String& needs) {
  CheckNeeds(needs);
});
// Takes a plug-in's name and gives such lines for models with regions of it.
TVM_REGISTER_GLOBAL("collage.runtime.NeedsOfPlugin").set_body_typed([](const String& name) -> String {
  return NeedsOfPlugin(name);
});
// The processor features that needs can name, one a line.
TVM_REGISTER_GLOBAL("collage.runtime.KnownProcessorFeatures").set_body_typed([]() -> String {
  std::string text;
  for (const std::string& name : KnownProcessorFeatures()) text += name + "\n";
  return text;
});
// The level of this processor ("x86-64-v3").
TVM_REGISTER_GLOBAL("collage.runtime.ProcessorLevel").set_body_typed([]() -> String {
  return BestProcessorLevel();
});

}  // namespace collage
