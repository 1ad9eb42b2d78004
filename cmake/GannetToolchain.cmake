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
if(GANNET_WERROR)
  target_compile_options(gannet_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()

if(GANNET_SANITIZE)
  add_compile_options(-fsanitize=${GANNET_SANITIZE} -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=${GANNET_SANITIZE})
endif()
