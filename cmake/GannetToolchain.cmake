# Compiler settings shared by every target: warnings, floating point, ccache, linker, sanitizers.

find_program(GANNET_CCACHE ccache)
if(GANNET_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${GANNET_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${GANNET_CCACHE})
endif()

find_program(GANNET_MOLD mold)
if(GANNET_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_library(gannet_options INTERFACE)
target_compile_options(gannet_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wconversion;-Wno-sign-conversion;-Wshadow;-fno-math-errno>
  # g++ 12 sees overlapping copies in `"text" + std::string` where there are none.
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-restrict>
  # Results must not depend on the compiler's mood: no contraction of a*b+c unless the source says fma.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
target_compile_options(gannet_options INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;-lineinfo;-Xcompiler=-Wall,-Wextra>)
if(GANNET_WERROR)
  target_compile_options(gannet_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()

# Messages name source files without the folder that they were built in.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=>)

if(GANNET_SANITIZE)
  # With sanitizers g++ 12 no longer sees that a variant's members are set, nor that a coroutine's frame is freed by the
  # operator that belongs to the one that made it.
  target_compile_options(gannet_options INTERFACE
    "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized;-Wno-mismatched-new-delete>")
  add_compile_options(-fsanitize=${GANNET_SANITIZE} -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=${GANNET_SANITIZE})
endif()
