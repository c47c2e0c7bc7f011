# Puts the guest package together in ${CMAKE_BINARY_DIR}/libexec/cellblock/guest: sources plus the generated constants.
# Compiled modules are mounted over its __pycache__, which a wheel has only if a file is in it.
set(GUEST_DIR ${CMAKE_BINARY_DIR}/libexec/cellblock/guest)
file(GLOB_RECURSE GUEST_SOURCES CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/guest
     ${CMAKE_SOURCE_DIR}/guest/*.py)

add_executable(wire-constants cmake/wire_constants.c)
set_target_properties(wire-constants PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tools)

# what an earlier tree had would be installed and mounted with the rest
file(GLOB_RECURSE GUEST_THERE RELATIVE ${GUEST_DIR} ${GUEST_DIR}/*.py)
list(REMOVE_ITEM GUEST_THERE ${GUEST_SOURCES} cellblock_guest/wire_constants.py)
foreach(gone ${GUEST_THERE})
	file(REMOVE ${GUEST_DIR}/${gone})
endforeach()

set(GUEST_OUTPUTS)
foreach(source ${GUEST_SOURCES})
	add_custom_command(OUTPUT ${GUEST_DIR}/${source}
			   COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/guest/${source}
				   ${GUEST_DIR}/${source}
			   DEPENDS ${CMAKE_SOURCE_DIR}/guest/${source})
	list(APPEND GUEST_OUTPUTS ${GUEST_DIR}/${source})
endforeach()
add_custom_command(OUTPUT ${GUEST_DIR}/cellblock_guest/wire_constants.py
		   COMMAND ${CMAKE_COMMAND} -E make_directory ${GUEST_DIR}/cellblock_guest/__pycache__
		   COMMAND ${CMAKE_COMMAND} -E touch ${GUEST_DIR}/cellblock_guest/__pycache__/keep
		   COMMAND wire-constants ${GUEST_DIR}/cellblock_guest/wire_constants.py
		   DEPENDS wire-constants)
list(APPEND GUEST_OUTPUTS ${GUEST_DIR}/cellblock_guest/wire_constants.py)

# The copier needs no library at all, and none of the flags that make one needed (sanitizers, stack protector).
file(GLOB COPIER_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/guest/copier/*.c)
file(GLOB COPIER_HEADERS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/guest/copier/*.h)
add_custom_command(OUTPUT ${GUEST_DIR}/cellblock_guest/libcopier.so
		   COMMAND ${CMAKE_C_COMPILER} @${CMAKE_SOURCE_DIR}/guest/copier/flags -I ${CMAKE_SOURCE_DIR}/include
			   ${COPIER_SOURCES} -o ${GUEST_DIR}/cellblock_guest/libcopier.so
		   DEPENDS ${COPIER_SOURCES} ${COPIER_HEADERS} ${CMAKE_SOURCE_DIR}/guest/copier/flags
			   ${CMAKE_SOURCE_DIR}/include/cellblock/wire.h ${CMAKE_SOURCE_DIR}/include/cellblock/twin.h
			   ${CMAKE_SOURCE_DIR}/include/cellblock/warm.h
			   ${CMAKE_SOURCE_DIR}/include/cellblock/guest_rights.h)
list(APPEND GUEST_OUTPUTS ${GUEST_DIR}/cellblock_guest/libcopier.so)
add_custom_target(guest ALL DEPENDS ${GUEST_OUTPUTS})
