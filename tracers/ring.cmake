hvf_library(tracer_ring ring.c)
hvf_unit_test(test_tracers_ring LIBS tracer_ring)
hvf_fuzz_target(fuzz_ring LIBS tracer_ring)
