# tessera_group_sources(TARGET): with TESSERA_UNITY, has the target's sources compiled in groups, each as one source. Most of
# the time that a source takes goes to the templates of headers, which are then made once a group. The groups name their
# sources as seen from the root of the project, so that clones of it share a compiler's cache.
option(TESSERA_UNITY "Compile groups of sources as one: less work from nothing, more after an edit" OFF)
set(TESSERA_UNITY_LINES 5000 CACHE STRING "Lines of sources that are compiled as one, with TESSERA_UNITY")
if(TESSERA_UNITY)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  execute_process(COMMAND "${Python3_EXECUTABLE}" -B "${PROJECT_SOURCE_DIR}/cmake/unity_groups.py" headers "${PROJECT_SOURCE_DIR}"
    OUTPUT_FILE "${PROJECT_BINARY_DIR}/headers.json" COMMAND_ERROR_IS_FATAL ANY)
endif()

# tessera_compile_lightly(TARGET FOLDER...): sources below these folders are optimised little, which saves a quarter of their
# compilation. For code that asks others to do what takes time.
set(TESSERA_LIGHT_OPTIONS "$<$<CONFIG:Release>:-O1>")
function(tessera_compile_lightly target)
  get_target_property(sources ${target} SOURCES)
  foreach(folder IN LISTS ARGN)
    set(below ${sources})
    list(FILTER below INCLUDE REGEX "^${CMAKE_CURRENT_SOURCE_DIR}/${folder}/.*\\.cpp$")
    if(below)
      set_source_files_properties(${below} PROPERTIES COMPILE_OPTIONS "${TESSERA_LIGHT_OPTIONS}")
    endif()
  endforeach()
endfunction()

# Writes groups of `sources` into `folder` and adds their names to `list`.
function(tessera_write_groups folder list sources)
  if(NOT sources)
    return()
  endif()
  execute_process(COMMAND "${Python3_EXECUTABLE}" -B "${PROJECT_SOURCE_DIR}/cmake/unity_groups.py"
    group ${TESSERA_UNITY_LINES} "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}/headers.json" "${folder}" ${sources}
    OUTPUT_VARIABLE groups OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" groups "${groups}")
  set(${list} "${groups}" PARENT_SCOPE)
endfunction()

function(tessera_group_sources target)
  if(NOT TESSERA_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(TRANSFORM sources PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" REGEX "^[^/$]")
  set(grouped)
  set(light)
  foreach(source IN LISTS sources)
    # A source with other options of its own is compiled alone, and so is a source that the build writes.
    set(is_alone FALSE)
    foreach(property IN ITEMS COMPILE_OPTIONS COMPILE_DEFINITIONS SKIP_PRECOMPILE_HEADERS)
      get_source_file_property(value "${source}" TARGET_DIRECTORY ${target} ${property})
      if(value)
        set(is_alone TRUE)
      endif()
      if(value STREQUAL TESSERA_LIGHT_OPTIONS)
        list(APPEND light "${source}")
      endif()
    endforeach()
    cmake_path(IS_PREFIX PROJECT_BINARY_DIR "${source}" is_written)
    if(source MATCHES "\\.cpp$" AND NOT is_alone AND NOT is_written)
      list(APPEND grouped "${source}")
    endif()
  endforeach()
  tessera_write_groups("${CMAKE_CURRENT_BINARY_DIR}/${target}_groups" groups "${grouped}")
  tessera_write_groups("${CMAKE_CURRENT_BINARY_DIR}/${target}_light_groups" light_groups "${light}")
  if(light_groups)
    set_source_files_properties(${light_groups} PROPERTIES COMPILE_OPTIONS "${TESSERA_LIGHT_OPTIONS}")
  endif()
  list(REMOVE_ITEM sources ${grouped} ${light} "")
  set_target_properties(${target} PROPERTIES SOURCES "${sources};${groups};${light_groups}")
  # A name that a source gets may be taken in its group, so a changed source may need other groups.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${grouped} ${light})
endfunction()
