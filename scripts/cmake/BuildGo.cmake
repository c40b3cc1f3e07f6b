# SPDX-License-Identifier: Apache-2.0
#
# The Go parts: libcollage (cmd/libcollage, a C shared library) and the program collage (cmd/collage).
# What is up to date, Go finds out by itself and quickly; so both run at every build.

find_program(GO_EXECUTABLE go HINTS /usr/local/go/bin)
if(NOT GO_EXECUTABLE)
  message(FATAL_ERROR
    "Go was not found. Install Go 1.26 or newer and put it in PATH, give it with -DGO_EXECUTABLE=PATH, or\n"
    "build the runtime plug-ins only: -DCOLLAGE_GO=OFF.")
endif()
execute_process(
  COMMAND ${GO_EXECUTABLE} env GOVERSION WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
  OUTPUT_VARIABLE go_version OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_VARIABLE go_error RESULT_VARIABLE go_failed)
if(go_failed)
  message(FATAL_ERROR "${GO_EXECUTABLE} does not work here; go.mod asks for Go 1.26 or newer.\n${go_error}")
endif()
message(STATUS "Go: ${go_version}")

# trimpath: no path of this machine in what is installed. buildvcs: a source archive has no git.
set(go_build ${CMAKE_COMMAND} -E env CGO_ENABLED=1 CC=${CMAKE_C_COMPILER}
  ${GO_EXECUTABLE} build -trimpath -buildvcs=false)
# Without debug information the files are a third smaller; panics still show file and line.

add_custom_target(libcollage ALL
  COMMAND ${go_build} -buildmode=c-shared "-ldflags=-s -w -extldflags=-Wl,-soname,libcollage.so"
    -o ${CMAKE_BINARY_DIR}/lib/libcollage.so ./cmd/libcollage
  WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} BYPRODUCTS ${CMAKE_BINARY_DIR}/lib/libcollage.so
  COMMENT "Building libcollage.so (Go)" VERBATIM)
install(PROGRAMS ${CMAKE_BINARY_DIR}/lib/libcollage.so DESTINATION collage/lib COMPONENT python)
add_custom_target(collage ALL
  COMMAND ${go_build} "-ldflags=-s -w" -o ${CMAKE_BINARY_DIR}/bin/collage ./cmd/collage
  WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} BYPRODUCTS ${CMAKE_BINARY_DIR}/bin/collage
  COMMENT "Building collage (Go)" VERBATIM)
# One after the other: each fills the machine by itself.
add_dependencies(collage libcollage)

install(PROGRAMS ${CMAKE_BINARY_DIR}/bin/collage DESTINATION collage/bin COMPONENT python)

# A wheel takes along the licences of what is linked in.
if(SKBUILD)
  set(third_party ${CMAKE_BINARY_DIR}/THIRD-PARTY-LICENSES.txt)
  add_custom_target(notices ALL
    COMMAND ${GO_EXECUTABLE} run ./scripts/notices --tvm ${TVM_DIR} --out ${third_party}
    WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} BYPRODUCTS ${third_party}
    COMMENT "Collecting licences" VERBATIM)
  add_dependencies(notices collage)
  install(FILES ${third_party} DESTINATION ${SKBUILD_METADATA_DIR}/licenses COMPONENT python)
endif()
