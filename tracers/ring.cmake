hvf_library(tracer_ring ring.c)
target_link_libraries(tracer_ring PUBLIC guest-agent)
hvf_unit_test(test_tracers_ring LIBS tracer_ring)
hvf_fuzz_target(fuzz_ring LIBS tracer_ring)
