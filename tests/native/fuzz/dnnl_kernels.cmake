# SPDX-License-Identifier: Apache-2.0
#
# The oneDNN engine for fuzz targets: its compiler by Clang, and instrumented; its kernels, which are written in GCC's
# vectors and inline assembly, by GCC and with its address sanitizer, which is the same library.
find_program(GCC_CXX g++ REQUIRED)

file(GLOB engine_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/byoc/runtime/dnnl_*.cc)
list(FILTER engine_sources EXCLUDE REGEX "/dnnl_tvm_|_program\\.cc$|dnnl_sized_text\\.cc$|dnnl_engine\\.cc$|dnnl_times\\.cc$")
file(GLOB kernel_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/byoc/runtime/native/*.cc)
include(${PROJECT_SOURCE_DIR}/byoc/runtime/native/levels.cmake)

set(kernel_objects "")
set(kernel_includes "$<TARGET_PROPERTY:collage_core,INCLUDE_DIRECTORIES>")
set(kernel_definitions "$<TARGET_PROPERTY:collage_core,COMPILE_DEFINITIONS>")
file(GLOB kernel_headers CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/byoc/runtime/*.h ${PROJECT_SOURCE_DIR}/byoc/runtime/native/*.h)
foreach(source ${kernel_sources})
  get_filename_component(name ${source} NAME_WE)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.gcc.o)
  get_source_file_property(level ${source} COMPILE_OPTIONS)
  if(NOT level)
    set(level "")
  endif()
  add_custom_command(OUTPUT ${object}
    COMMAND ${GCC_CXX} -std=c++17 -O1 -g1 -fPIC -fsanitize=address -fno-omit-frame-pointer ${level}
      "-isystem;$<JOIN:${kernel_includes},;-isystem;>" "-D$<JOIN:${kernel_definitions},;-D>" -c ${source} -o ${object}
    DEPENDS ${source} ${kernel_headers}
    COMMAND_EXPAND_LISTS VERBATIM)
  list(APPEND kernel_objects ${object})
endforeach()

add_library(fuzz_dnnl STATIC ${engine_sources} ${kernel_objects})
target_compile_options(fuzz_dnnl PRIVATE -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
  -Wall -Wextra -Wno-unknown-pragmas)
target_link_libraries(fuzz_dnnl PUBLIC collage_core)
target_link_libraries(dnnl_compile_fuzz PRIVATE fuzz_dnnl)
