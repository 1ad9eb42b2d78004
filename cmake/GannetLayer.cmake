# gannet_layer(NAME [DEPENDS layer...] [LIBRARIES target...] [EXCLUDE regex])
#
# One static library for the folder src/NAME, from every .cc below it, and one test program from every test.cc and
# *_test.cc. Files named *avx2.cc and *avx512.cc are compiled for that instruction set and must only be called after a
# run-time check; bench.cc files belong to the library (they register benchmarks for `gannet bench`). With CUDA the .cu
# files and the .cc files of folders named cuda are compiled too; without it *_absent.cc files stand in for them. What
# tests CUDA code belongs to gannet-gpu-test: *_gpu_test.cc, *_test.cu where a test needs device code, testing_*.
function(gannet_layer name)
  cmake_parse_arguments(arg "" "EXCLUDE" "DEPENDS;LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc)
  if(arg_EXCLUDE)
    list(FILTER sources EXCLUDE REGEX "${arg_EXCLUDE}")
  endif()
  list(FILTER sources EXCLUDE REGEX "_gpu_test\\.cc$|/cuda/testing_main\\.cc$")
  if(NOT GANNET_WITH_CUDA)
    list(FILTER sources EXCLUDE REGEX "/cuda/")
  endif()
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "(/|_)test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "(/|_)test\\.cc$")
  if(GANNET_WITH_CUDA)
    file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cu)
    list(FILTER cuda_sources EXCLUDE REGEX "_test\\.cu$|/cuda/testing_kernels\\.cu$")
    list(APPEND sources ${cuda_sources})
    list(FILTER sources EXCLUDE REGEX "_absent\\.cc$")
  endif()

  list(TRANSFORM arg_DEPENDS PREPEND gannet_)
  add_library(gannet_${name} STATIC ${sources})
  target_include_directories(gannet_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(gannet_${name} PUBLIC ${arg_DEPENDS} ${arg_LIBRARIES} PRIVATE gannet_options)
  if(GANNET_WITH_CUDA AND cuda_sources)
    target_link_libraries(gannet_${name} PUBLIC CUDA::cudart_static)
  endif()

  # g++ 12 takes the deliberately undefined registers inside its own intrinsics for our mistakes.
  set(quiet "$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized;-Wno-uninitialized>")
  foreach(source ${sources})
    if(source MATCHES "avx512[a-z0-9_]*\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx2;-mfma;-mf16c;-mprefer-vector-width=512;${quiet}")
    elseif(source MATCHES "avx2\\.cc$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c;${quiet}")
    endif()
  endforeach()

  if(GANNET_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE gannet_${name} gannet_options GTest::gtest_main GTest::gmock)
    target_compile_definitions(${name}_test PRIVATE GANNET_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data"
                                                    GANNET_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    add_test(NAME ${name} COMMAND ${name}_test)
  endif()
endfunction()
