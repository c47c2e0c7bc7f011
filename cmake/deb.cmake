# A Debian package of the kernel, for the release that it is built on:
#   cmake --preset release && cmake --build --preset release && cpack --preset deb
# The kernelspec is the wheel's with the paths of a system. The Python client is not in it: it needs newer packages than
# Debian 12 has, and comes from PyPI.

file(READ packaging/wheel/kernel.json DEB_KERNELSPEC)
string(REPLACE "{resource_dir}/../../../../bin/cellblock-python" "/usr/bin/python3" DEB_KERNELSPEC "${DEB_KERNELSPEC}")
string(REPLACE "{resource_dir}/../../../../bin/" "/usr/bin/" DEB_KERNELSPEC "${DEB_KERNELSPEC}")
file(WRITE ${CMAKE_BINARY_DIR}/deb/kernel.json "${DEB_KERNELSPEC}")
install(DIRECTORY kernelspec/ DESTINATION ${CMAKE_INSTALL_DATADIR}/jupyter/kernels/cellblock COMPONENT deb
	EXCLUDE_FROM_ALL)
install(FILES ${CMAKE_BINARY_DIR}/deb/kernel.json DESTINATION ${CMAKE_INSTALL_DATADIR}/jupyter/kernels/cellblock
	COMPONENT deb EXCLUDE_FROM_ALL)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/cellblock RENAME copyright COMPONENT deb
	EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME cellblock)
set(CPACK_PACKAGE_CONTACT "The Cellblock authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Jupyter kernel that runs every cell in a jail")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL Unspecified deb)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "python3 (>= 3.9)")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3-ipython, python3-jupyter-client")
set(CPACK_STRIP_FILES ON)
# without this program CPack would make a package that asks for no libraries, and say so in passing
file(WRITE ${CMAKE_BINARY_DIR}/deb/check.cmake "find_program(SHLIBDEPS dpkg-shlibdeps)
if(NOT SHLIBDEPS)
	message(FATAL_ERROR \"dpkg-shlibdeps is missing: apt-get install dpkg-dev\")
endif()
")
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_BINARY_DIR}/deb/check.cmake)
include(CPack)
