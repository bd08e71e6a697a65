# `cmake --install build/release --prefix P` gives a package that find_package(tessera) finds.
install(TARGETS tessera_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
