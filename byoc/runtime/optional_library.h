// SPDX-License-Identifier: Apache-2.0
//
// A shared library that a plug-in opens when it is first needed and is not linked with: the same file may
// lie elsewhere, or nowhere, on the machine that runs an exported model. byoc/library.go looks in the same
// places when a model is compiled.
#ifndef COLLAGE_OPTIONAL_LIBRARY_H_
#define COLLAGE_OPTIONAL_LIBRARY_H_

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace collage {

// Where a library may lie.
struct LibraryPlaces {
  // What users call it ("OpenBLAS") and how they get it ("pip install scipy-openblas32").
  const char* title;
  const char* remedy;
  // The environment variable that names the file; it goes before every other place.
  const char* environment;
  // Files below site-packages and below the Python's prefix (each may be a glob: a version number ends some
  // names), and names for the loader's own search.
  std::vector<std::string> in_packages, in_prefix, names;
};

// An open library. It is never closed: its threads and caches outlive any model. Hidden, since each plug-in
// has its own idea of where it lies.
class __attribute__((visibility("hidden"))) OptionalLibrary {
 public:
  // Opens the library, the first of these that is there and can be opened. No model has a say in it.
  //   1. the file that the environment variable names, and no other
  //   2. packages of the Python that COLLAGE_PYTHON names
  //   3. packages beside the plug-in that calls this
  //   4. packages that the user has installed for himself (~/.local)
  //   5. where the dynamic loader looks: LD_LIBRARY_PATH, the system's folders
  // Throws std::runtime_error with what was tried and what to do.
  explicit OptionalLibrary(const LibraryPlaces& places) : title_(places.title) {
    std::string tried;
    const char* named = std::getenv(places.environment);
    if (named != nullptr && *named != '\0') {
      if (Open(named, &tried)) return;
      throw std::runtime_error(title_ + " cannot be opened where " + places.environment + " says:" + tried);
    }
    for (const auto& [folders, files] :
         {std::pair(PackageFolders(), places.in_packages), std::pair(Prefixes(), places.in_prefix)}) {
      for (const std::string& folder : folders) {
        for (const std::string& file : files) {
          for (const std::string& found : Existing(folder + "/" + file)) {
            if (Open(found, &tried)) return;
          }
        }
      }
    }
    for (const std::string& name : places.names) {
      if (Open(name, &tried)) return;
    }
    throw std::runtime_error(title_ + ", which this model was compiled for, is not here:" + tried +
                             ". Install it (" + places.remedy + "), or name its file in " +
                             places.environment);
  }

  // Where it was found.
  const std::string& path() const { return path_; }

  // A function of the library; nullptr where it has none of that name.
  template <typename Function>
  Function Find(const std::string& name) const {
    return reinterpret_cast<Function>(dlsym(handle_, name.c_str()));
  }

  // Sets function to that of the given name. Throws where the library has none: it is another version.
  template <typename Function>
  void Get(const std::string& name, Function* function) const {
    *function = Find<Function>(name);
    if (*function == nullptr) {
      throw std::runtime_error(title_ + " in " + path_ + " has no function " + name +
                               "; it is another version than this model was compiled for");
    }
  }

 private:
  bool Open(const std::string& file, std::string* tried) {
    // Local: two versions of a library, or two libraries with the same names in them, stay apart.
    handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      path_ = file;
      return true;
    }
    const char* error = dlerror();
    *tried += (tried->empty() ? " " : "; ") + std::string(error != nullptr ? error : file);
    return false;
  }

  // The files that a path or glob stands for.
  static std::vector<std::string> Existing(const std::string& pattern) {
    glob_t found;
    std::vector<std::string> files;
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
      files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    }
    globfree(&found);
    return files;
  }

  static std::string Variable(const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
  }

  // The prefix of the Python that COLLAGE_PYTHON names, and that of the plug-in that this is compiled into,
  // which lies in PREFIX/lib/pythonX.Y/site-packages/collage/lib.
  static std::vector<std::string> Prefixes() {
    std::vector<std::string> prefixes;
    const std::string python = Variable("COLLAGE_PYTHON");
    if (!python.empty()) {
      prefixes.push_back(std::filesystem::path(python).parent_path().parent_path().string());
    }
    prefixes.push_back((PluginFolder() / "../../../../..").lexically_normal().string());
#ifdef COLLAGE_DEV_PREFIX
    // The plug-in lies where it was built.
    prefixes.emplace_back(COLLAGE_DEV_PREFIX);
#endif
    return prefixes;
  }

  // Folders, or patterns of folders, that packages of Python are installed in.
  static std::vector<std::string> PackageFolders() {
    std::vector<std::string> folders;
    std::vector<std::string> prefixes = Prefixes();
    const std::string home = Variable("HOME");
    if (!home.empty()) prefixes.push_back(home + "/.local");
    for (const std::string& prefix : prefixes) {
      for (const char* form : {"lib/python3*/site-packages", "lib/python3*/dist-packages",
                               "lib/python3/dist-packages", "local/lib/python3*/dist-packages"}) {
        folders.push_back(prefix + "/" + form);
      }
    }
    return folders;
  }

  // The folder of the plug-in that this is compiled into.
  static std::filesystem::path PluginFolder() {
    static const char here = 0;
    Dl_info info;
    if (dladdr(&here, &info) == 0 || info.dli_fname == nullptr) return ".";
    return std::filesystem::absolute(info.dli_fname).parent_path();
  }

  const std::string title_;
  void* handle_ = nullptr;
  std::string path_;
};

}  // namespace collage

#endif  // COLLAGE_OPTIONAL_LIBRARY_H_
