# corro_embed(TARGET HEADER include FUNCTION namespace::function FILES ...): the files as constants of the target. The
# header declares `std::span<const http::Asset> function();`. Changed files are embedded anew by the next build.
#
# As a script it writes that source: cmake -D OUTPUT=... -D HEADER=... -D FUNCTION=... -D FILES=a,b -P CorroAssets.cmake
function(corro_embed target)
  cmake_parse_arguments(arg "" "HEADER;FUNCTION" "FILES" ${ARGN})
  set(output ${CMAKE_CURRENT_BINARY_DIR}/embedded_files.cc)
  list(TRANSFORM arg_FILES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  string(JOIN "," files ${arg_FILES})
  set(script ${PROJECT_SOURCE_DIR}/cmake/CorroAssets.cmake)
  add_custom_command(
    OUTPUT ${output}
    COMMAND
      ${CMAKE_COMMAND} -D OUTPUT=${output} -D HEADER=${arg_HEADER} -D FUNCTION=${arg_FUNCTION} -D
      FILES=${files} -P ${script}
    DEPENDS ${arg_FILES} ${script}
    VERBATIM
  )
  target_sources(${target} PRIVATE ${output})
endfunction()

# corro_media_type(VARIABLE FILE): what a browser has to take the file for.
function(corro_media_type variable file)
  cmake_path(GET file EXTENSION LAST_ONLY extension)
  set(.html "text/html; charset=utf-8")
  set(.css "text/css; charset=utf-8")
  set(.js "text/javascript; charset=utf-8")
  set(.svg "image/svg+xml")
  if(NOT DEFINED ${extension})
    message(FATAL_ERROR "${file}: say its type in CorroAssets.cmake")
  endif()
  set(${variable} "${${extension}}" PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  string(REPLACE "::" ";" names ${FUNCTION})
  list(POP_BACK names function)
  list(JOIN names "::" namespace)
  set(source "// Made by CorroAssets.cmake.\n#include \"${HEADER}\"\n\n#include <array>\n\n")
  string(APPEND source "namespace ${namespace} {\n")
  string(REPLACE "," ";" files ${FILES})
  list(LENGTH files count)
  string(APPEND source "namespace {\n\nconstexpr std::array<http::Asset, ${count}> kFiles = {{\n")
  foreach(file IN LISTS files)
    cmake_path(GET file FILENAME name)
    corro_media_type(type ${file})
    file(READ ${file} text)
    string(APPEND source "    {\"${name}\", \"${type}\",\n     R\"asset(${text})asset\"},\n")
  endforeach()
  string(APPEND source "}};\n\n}  // namespace\n\n")
  string(APPEND source "std::span<const http::Asset> ${function}() { return kFiles; }\n\n")
  string(APPEND source "}  // namespace ${namespace}\n")
  file(WRITE ${OUTPUT} "${source}")
endif()
