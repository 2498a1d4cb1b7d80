# Third-party packages. Why each is here: docs/dependencies.md.
find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED COMPONENTS json)
find_package(GTest REQUIRED)
include(GoogleTest)
find_package(ZLIB REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(SECCOMP REQUIRED IMPORTED_TARGET libseccomp)
pkg_check_modules(ARCHIVE REQUIRED IMPORTED_TARGET libarchive)
pkg_check_modules(CURL REQUIRED IMPORTED_TARGET libcurl)
find_path(TOML_INCLUDE toml++/toml.h REQUIRED)
find_path(EXPECTED_INCLUDE tl/expected.hpp REQUIRED)

# Asio and Beast are compiled once (src/base/asio_src.cc, src/http/beast_src.cc), not in every file that uses them.
add_library(glovebox_asio INTERFACE)
target_link_libraries(glovebox_asio INTERFACE Boost::headers Threads::Threads)
target_compile_definitions(glovebox_asio INTERFACE BOOST_ASIO_NO_DEPRECATED BOOST_ASIO_SEPARATE_COMPILATION
  BOOST_BEAST_SEPARATE_COMPILATION BOOST_ASIO_DISABLE_VISIBILITY=1)
