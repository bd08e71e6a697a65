# tessera_group_sources(TARGET): with CMAKE_UNITY_BUILD, which sources of the target are compiled as one. Most of the time
# that a source takes goes to the templates of headers, which are then made once a group.
set(TESSERA_UNITY_LINES 2500 CACHE STRING "Lines of sources that are compiled as one, with CMAKE_UNITY_BUILD")

function(tessera_group_sources target)
  if(NOT CMAKE_UNITY_BUILD)
    return()
  endif()
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  list(TRANSFORM sources PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/" REGEX "^[^/]")
  execute_process(COMMAND "${Python3_EXECUTABLE}" -B "${PROJECT_SOURCE_DIR}/cmake/unity_groups.py"
    ${TESSERA_UNITY_LINES} "${PROJECT_SOURCE_DIR}/tessera" ${sources}
    OUTPUT_VARIABLE groups COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n;]+;[0-9]+" groups "${groups}")
  while(groups)
    list(POP_FRONT groups source group)
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP "${group}")
  endwhile()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  # A new name may need other groups.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sources})
endfunction()
