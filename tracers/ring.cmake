hvf_library(tracer_ring ring.c)
