"""A second engine shape from the same parts: vLLM 0.32 with data parallelism, mixture of experts in lockstep or dense and independent."""
