# What users meet in a shell, from the tables of the command line: completion, and manual pages where scdoc is there.
set(SHELL_DIR ${CMAKE_BINARY_DIR}/shell)
set(SHELL_OUTPUTS)
foreach(pair bash:cellblock zsh:_cellblock fish:cellblock.fish)
	string(REPLACE ":" ";" pair ${pair})
	list(GET pair 0 shell)
	list(GET pair 1 name)
	add_custom_command(OUTPUT ${SHELL_DIR}/${shell}/${name}
			   COMMAND ${CMAKE_COMMAND} -E make_directory ${SHELL_DIR}/${shell}
			   COMMAND cellblock completion ${shell} > ${SHELL_DIR}/${shell}/${name}
			   DEPENDS cellblock)
	list(APPEND SHELL_OUTPUTS ${SHELL_DIR}/${shell}/${name})
endforeach()
install(FILES ${SHELL_DIR}/bash/cellblock DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${SHELL_DIR}/zsh/_cellblock DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${SHELL_DIR}/fish/cellblock.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

find_program(SCDOC scdoc)
if(SCDOC)
	add_executable(man-pages cmake/man_pages.c)
	target_link_libraries(man-pages PRIVATE cb_kernel)
	set_target_properties(man-pages PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tools)
	add_custom_command(OUTPUT ${SHELL_DIR}/man/stamp
			   COMMAND ${CMAKE_COMMAND} -E make_directory ${SHELL_DIR}/man
			   COMMAND man-pages ${SHELL_DIR}/man ${CMAKE_SOURCE_DIR}/docs/policy.md
			   COMMAND ${CMAKE_SOURCE_DIR}/cmake/man_pages.sh ${SCDOC} ${SHELL_DIR}/man
			   COMMAND ${CMAKE_COMMAND} -E touch ${SHELL_DIR}/man/stamp
			   DEPENDS man-pages cmake/man_pages.sh docs/policy.md)
	file(MAKE_DIRECTORY ${SHELL_DIR}/man)
	list(APPEND SHELL_OUTPUTS ${SHELL_DIR}/man/stamp)
	foreach(section 1 5)
		install(DIRECTORY ${SHELL_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section}
			FILES_MATCHING PATTERN *.${section})
	endforeach()
else()
	message(STATUS "scdoc is not there: no manual pages")
endif()
add_custom_target(shell ALL DEPENDS ${SHELL_OUTPUTS})
