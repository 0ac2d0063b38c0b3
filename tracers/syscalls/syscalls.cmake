# System calls: events, decoder, outputs. Part of the library tracers.
set(calls ${CMAKE_CURRENT_SOURCE_DIR}/syscalls)
target_sources(tracers PRIVATE
	${calls}/assemble.c
	${calls}/calls_desc.c
	${calls}/calls_file.c
	${calls}/calls_memory.c
	${calls}/calls_misc.c
	${calls}/calls_network.c
	${calls}/calls_process.c
	${calls}/decode.c
	${calls}/event.c
	${calls}/filter.c
	${calls}/flags_file.c
	${calls}/flags_net.c
	${calls}/flags_proc.c
	${calls}/flags_proc2.c
	${calls}/memory.c
	${calls}/net.c
	${calls}/out_falco.c
	${calls}/out_json.c
	${calls}/out_ocsf.c
	${calls}/out_text.c
	${calls}/plan.c
	${calls}/structs.c
	${calls}/summary.c
	${calls}/values.c)

hvf_unit_test(test_tracers_sys_decode LIBS tracers)
hvf_unit_test(test_tracers_sys_user LIBS tracers)
# assemble.c with a made-up table of calls
hvf_unit_test(test_tracers_sys_assemble LIBS base SRCS ${calls}/assemble.c ${calls}/event.c)
hvf_unit_test(test_tracers_sys_out LIBS tracers PkgConfig::JANSSON)
hvf_fuzz_target(fuzz_syscalls LIBS tracers PkgConfig::JANSSON)
