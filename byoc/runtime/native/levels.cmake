# SPDX-License-Identifier: Apache-2.0
#
# What the files of each level of instructions are compiled with (native/level.h). On other processors than x86-64 they
# are empty.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/level_avx2.cc PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma")
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/level_avx512.cc PROPERTIES
    COMPILE_OPTIONS "-mavx512f;-mavx512vl;-mavx512dq;-mavx512bw;-mfma")
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/level_avx512_vnni.cc PROPERTIES
    COMPILE_OPTIONS "-mavx512f;-mavx512vl;-mavx512dq;-mavx512bw;-mavx512vnni;-mfma")
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/level_avx512_bf16.cc PROPERTIES
    COMPILE_OPTIONS "-mavx512f;-mavx512vl;-mavx512dq;-mavx512bw;-mavx512bf16;-mfma")
  # What AMX has beyond these is written as assembly.
  set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/level_amx.cc PROPERTIES
    COMPILE_OPTIONS "-mavx512f;-mavx512vl;-mavx512dq;-mavx512bw;-mavx512vnni;-mavx512bf16;-mfma")
endif()
