# glovebox_module(NAME SOURCES … DEPENDS … TESTS …): the static library glovebox_NAME from src/NAME, and its
# unit tests as one program NAME_tests. DEPENDS may name modules of a lower layer, or packages. The order of the
# layers is written once, here; tests/structure reads the includes and fails when one points up.
set(GLOVEBOX_LAYERS
  "base"
  "sys http store audit metrics"
  "channel"
  "policy"
  "image network egress registry runtime"
  "tenant sandbox"
  "code"
  "api"
  "programs")

function(glovebox_module name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;TESTS;TEST_DEPENDS" ${ARGN})
  add_library(glovebox_${name} STATIC ${ARG_SOURCES})
  target_include_directories(glovebox_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(glovebox_${name} PUBLIC ${ARG_DEPENDS})
  if(ARG_TESTS)
    glovebox_test(${name}_tests SOURCES ${ARG_TESTS} DEPENDS glovebox_${name} ${ARG_TEST_DEPENDS})
  endif()
endfunction()

function(glovebox_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS} GTest::gtest GTest::gmock GTest::gtest_main)
  # DISCOVERY at test time: a cross-checked list, and no run of the program while building.
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 600)
endfunction()
