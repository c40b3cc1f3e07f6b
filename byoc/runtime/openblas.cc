// SPDX-License-Identifier: Apache-2.0
//
// OpenBLAS, on one thread: what runs side by side are our pieces of a product (blas_split.h). OpenBLAS can
// hand its own pieces to a callback, but they wait for each other in loops, so that they hang unless all of
// them run at once, which no task scheduler promises.
#include <cstdlib>
#include <string>

#include "blas_engine.h"
#include "needs.h"
#include "optional_library.h"

namespace collage {
namespace {

// Sets a variable of the environment for a while, unless it is set.
class WithEnvironment {
 public:
  WithEnvironment(const char* name, const char* value) : name_(name), ours_(std::getenv(name) == nullptr) {
    if (ours_) setenv(name_, value, 0);
  }
  ~WithEnvironment() {
    if (ours_) unsetenv(name_);
  }
  WithEnvironment(const WithEnvironment&) = delete;
  WithEnvironment& operator=(const WithEnvironment&) = delete;

 private:
  const char* name_;
  const bool ours_;
};

OptionalLibrary Open() {
  // Read once, when the library is loaded and would start its own threads.
  const WithEnvironment threads("OPENBLAS_NUM_THREADS", "1");
  return OptionalLibrary({"OpenBLAS",
                          "pip install scipy-openblas32",
                          "COLLAGE_OPENBLAS_LIBRARY",
                          {"scipy_openblas32/lib/libscipy_openblas.so"},
                          {},
                          {"libscipy_openblas.so", "libopenblas.so.0", "libopenblas.so"}});
}

struct OpenBlas : BlasLibrary {
  OpenBlas() : file(Open()) {
    // SciPy's build puts a word before its names, so that two libraries get along in one process.
    prefix = file.Find<void*>("scipy_cblas_sgemm") != nullptr ? "scipy_" : "";
    file.Get(prefix + "cblas_sgemm", &of_float.gemm);
    file.Get(prefix + "cblas_sgemv", &of_float.gemv);
    file.Get(prefix + "cblas_dgemm", &of_double.gemm);
    file.Get(prefix + "cblas_dgemv", &of_double.gemv);
    void (*set_threads)(int) = nullptr;
    file.Get(prefix + "openblas_set_num_threads", &set_threads);
    set_threads(1);
  }

  OptionalLibrary file;
  std::string prefix;
};

const OpenBlas& Library() {
  static const OpenBlas* const library = new OpenBlas;
  return *library;
}

std::unique_ptr<RegionEngine> Make(const RegionProgram& program) {
  BlasProgram parsed = BlasProgram::Of(program);
  return MakeBlasEngine(Library(), std::move(parsed), program.constants);
}

std::string Version() {
  const OpenBlas& library = Library();
  char* (*config)() = nullptr;
  library.file.Get(library.prefix + "openblas_get_config", &config);
  return config();
}

[[maybe_unused]] const bool registered = [] {
  RegisterPlugin("openblas", {"OpenBLAS", Version, kBlasProgramForm});
  RegisterRegionEngine("openblas", Make);
  return true;
}();

}  // namespace
}  // namespace collage
