# Warnings and hardening. Probed, not assumed: gcc 12 and clang 14 differ. Each probe is a build, so all are tried at
# once first, and one by one only where that fails.
include(CheckCCompilerFlag)

function(cb_add_flags)
	string(MD5 all "${ARGN}")
	check_c_compiler_flag("${ARGN}" HAVE_ALL_${all})
	foreach(flag ${ARGN})
		string(MAKE_C_IDENTIFIER "HAVE${flag}" name)
		if(NOT HAVE_ALL_${all})
			check_c_compiler_flag(${flag} ${name})
		endif()
		if(HAVE_ALL_${all} OR ${name})
			add_compile_options(${flag})
		endif()
	endforeach()
endfunction()

cb_add_flags(-Wall -Wextra -Wformat=2 -Wconversion -Wshadow -Wundef -Wstrict-prototypes -Wmissing-prototypes -Wvla
	     -Walloca -Wcast-qual -Wswitch-enum -Wimplicit-fallthrough -Wnull-dereference -Wformat-signedness
	     -Wlogical-op -Wduplicated-cond -Wduplicated-branches -Warray-parameter=2 -Wuse-after-free=3)
if(CELLBLOCK_WERROR)
	add_compile_options(-Werror)
endif()

cb_add_flags(-fno-strict-aliasing -fstack-protector-strong -fstack-clash-protection -ftrivial-auto-var-init=zero
	     -fzero-call-used-regs=used-gpr)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64")
	cb_add_flags(-fcf-protection=full)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64")
	cb_add_flags(-mbranch-protection=standard)
endif()
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
add_link_options(-pie -Wl,-z,relro,-z,now,-z,noexecstack,--as-needed)

if(CELLBLOCK_SANITIZE)
	add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
	add_link_options(-fsanitize=address,undefined)
elseif(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
	add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
endif()
if(CELLBLOCK_FUZZ)
	add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all)
	add_link_options(-fsanitize=address,undefined)
endif()
