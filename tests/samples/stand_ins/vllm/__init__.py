"""A stand-in: tpu-inference imports vLLM for its logger."""
