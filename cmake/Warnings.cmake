# Flags for every host target; each is probed once so that gcc and clang both build.
include(CheckCCompilerFlag)

add_library(hvf_flags INTERFACE)

function(hvf_flag flag)
	string(MAKE_C_IDENTIFIER "HAVE${flag}" var)
	check_c_compiler_flag(${flag} ${var})
	if(${var})
		target_compile_options(hvf_flags INTERFACE $<$<COMPILE_LANGUAGE:C>:${flag}>)
	endif()
endfunction()

foreach(flag -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes
	-Wmissing-prototypes -Wold-style-definition -Wpointer-arith -Wcast-align -Wcast-qual
	-Wwrite-strings -Wvla -Wundef -Wformat=2 -Wimplicit-fallthrough -Wdouble-promotion
	-Wduplicated-cond -Wduplicated-branches -Wlogical-op -Walloca)
	hvf_flag(${flag})
endforeach()
if(HVF_WERROR)
	hvf_flag(-Werror)
endif()

target_compile_definitions(hvf_flags INTERFACE _GNU_SOURCE HVF_VERSION="${PROJECT_VERSION}"
	$<$<BOOL:${HVF_FAULT_POINTS}>:HVF_FAULT_POINTS>)

if(HVF_SANITIZE)
	add_compile_options(-fsanitize=${HVF_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
	add_link_options(-fsanitize=${HVF_SANITIZE})
elseif(CMAKE_BUILD_TYPE MATCHES "Rel")
	add_compile_definitions(_FORTIFY_SOURCE=2)
	add_compile_options(-fstack-protector-strong -fstack-clash-protection)
	add_link_options(-Wl,-z,relro,-z,now,-z,noexecstack -pie)
endif()

# hvf_library(name source...): a folder's static library with the house's flags.
function(hvf_library name)
	add_library(${name} STATIC ${ARGN})
	target_link_libraries(${name} PUBLIC hvf_flags)
endfunction()

# hvf_unit_test(name LIBS lib... [SRCS src...] [WRAP fn...]): tests/unit/<name>.c with cmocka, label "unit". For
# each fn that is wrapped the test's own __wrap_fn() is called.
function(hvf_unit_test name)
	cmake_parse_arguments(T "" "" "LIBS;SRCS;WRAP" ${ARGN})
	add_executable(${name} ${CMAKE_SOURCE_DIR}/tests/unit/${name}.c ${T_SRCS})
	target_link_libraries(${name} PRIVATE hvf_flags ${T_LIBS} cmocka)
	list(TRANSFORM T_WRAP PREPEND -Wl,--wrap=)
	target_link_options(${name} PRIVATE ${T_WRAP})
	add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR}/tests)
	set_tests_properties(${name} PROPERTIES LABELS unit TIMEOUT 60)
endfunction()

# hvf_fuzz_target(name LIBS lib...): tests/fuzz/<name>.c as a libFuzzer program (only with HVF_FUZZ).
function(hvf_fuzz_target name)
	if(NOT HVF_FUZZ)
		return()
	endif()
	cmake_parse_arguments(T "" "" "LIBS" ${ARGN})
	add_executable(${name} ${CMAKE_SOURCE_DIR}/tests/fuzz/${name}.c)
	target_link_libraries(${name} PRIVATE hvf_flags ${T_LIBS})
	target_link_options(${name} PRIVATE -fsanitize=fuzzer)
endfunction()
