hvf_library(tracer_ring ring.c)
hvf_unit_test(test_tracers_ring LIBS tracer_ring)

if(HVF_FUZZ)
	# ring.c itself, not the library: the fuzzer must see its branches
	add_executable(fuzz_ring ${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_ring.c ring.c)
	target_link_libraries(fuzz_ring PRIVATE hvf_flags)
	target_compile_options(fuzz_ring PRIVATE -fsanitize=fuzzer)
	target_link_options(fuzz_ring PRIVATE -fsanitize=fuzzer)
	add_test(NAME fuzz_ring COMMAND fuzz_ring -max_total_time=30 -max_len=8192)
	set_tests_properties(fuzz_ring PROPERTIES LABELS fuzz TIMEOUT 120)
endif()
