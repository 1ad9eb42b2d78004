# cmake -DFOLDER=src/server/web -DOPENAPI=src/server/openapi.json -DOUTPUT=web_files.h -P EmbedWeb.cmake
#
# Writes the files of a folder, and one that is served at the root, as a C++ header, so that the program needs nothing
# beside it.

set(types html "text/html\; charset=utf-8" js "text/javascript\; charset=utf-8" css "text/css\; charset=utf-8"
          svg "image/svg+xml" json "application/json")
set(arrays "")
set(entries "")
set(count 0)
file(GLOB files ${FOLDER}/*)
foreach(file ${files} ${OPENAPI})
  get_filename_component(name ${file} NAME)
  string(REGEX MATCH "[a-z]+$" extension ${name})
  list(FIND types ${extension} position)
  if(position EQUAL -1)
    message(FATAL_ERROR "${file}: what content type is that?")
  endif()
  math(EXPR position "${position} + 1")
  list(GET types ${position} type)
  set(path "/web/${name}")
  if(name STREQUAL "index.html")
    set(path "/")
  elseif(file STREQUAL OPENAPI)
    set(path "/${name}")
  endif()
  file(READ ${file} hex HEX)
  string(LENGTH "${hex}" length)
  math(EXPR length "${length} / 2")
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(APPEND arrays "inline constexpr unsigned char kWebBytes${count}[] = {${bytes}};\n")
  string(APPEND entries "    WebFile{\"${path}\", \"${type}\",\n"
                        "            {reinterpret_cast<const char*>(kWebBytes${count}), ${length}}},\n")
  math(EXPR count "${count} + 1")
endforeach()
file(WRITE ${OUTPUT} "#pragma once

#include <array>

#include \"server/web_page.h\"

namespace gannet::server {

${arrays}
inline const std::array<WebFile, ${count}> kWebFiles = {
${entries}};

}  // namespace gannet::server
")
