// SPDX-License-Identifier: Apache-2.0
//
// oneMKL, with the arena's threads: its oneTBB layer starts its work in the arena that it is called in.
#include <string>

#include "blas_engine.h"
#include "needs.h"
#include "optional_library.h"

namespace collage {
namespace {

// From mkl_service.h.
constexpr int kThreadingTbb = 4, kInterfaceLp64 = 0;

template <typename T>
void Find(const OptionalLibrary& mkl, const std::string& letter, BlasFunctions<T>* blas) {
  mkl.Get("cblas_" + letter + "gemm", &blas->gemm);
  mkl.Get("cblas_" + letter + "gemm_batch_strided", &blas->gemm_batch_strided);
  mkl.Get("cblas_" + letter + "gemm_pack_get_size", &blas->pack_size);
  mkl.Get("cblas_" + letter + "gemm_pack", &blas->pack);
  mkl.Get("cblas_" + letter + "gemm_compute", &blas->gemm_packed);
}

struct Mkl : BlasLibrary {
  Mkl()
      : file({"oneMKL",
              "pip install mkl==2024.2.2",
              "COLLAGE_MKL_LIBRARY",
              {},
              {"lib/libmkl_rt.so.2", "lib/libmkl_rt.so.3"},
              {"libmkl_rt.so.2", "libmkl_rt.so.3"}}) {
    int (*set_threading)(int) = nullptr;
    int (*set_interface)(int) = nullptr;
    file.Get("MKL_Set_Threading_Layer", &set_threading);
    file.Get("MKL_Set_Interface_Layer", &set_interface);
    set_interface(kInterfaceLp64);
    if (set_threading(kThreadingTbb) != kThreadingTbb) {
      throw std::runtime_error("oneMKL (" + file.path() +
                               ") is in use in this process with threads of another kind than oneTBB's; "
                               "load the model before what uses it");
    }
    Find(file, "s", &of_float);
    Find(file, "d", &of_double);
    parallel = true;
  }

  OptionalLibrary file;
};

const Mkl& Library() {
  static const Mkl* const mkl = new Mkl;
  return *mkl;
}

std::unique_ptr<RegionEngine> Make(const RegionProgram& program) {
  BlasProgram parsed = BlasProgram::Of(program);
  return MakeBlasEngine(Library(), std::move(parsed), program.constants);
}

std::string Version() {
  void (*version)(char*, int) = nullptr;
  Library().file.Get("mkl_get_version_string", &version);
  char text[256] = {};
  version(text, sizeof(text) - 1);
  return text;
}

[[maybe_unused]] const bool registered = [] {
  RegisterPlugin("mkl", {"oneMKL", Version, kBlasProgramForm});
  RegisterRegionEngine("mkl", Make);
  return true;
}();

}  // namespace
}  // namespace collage
