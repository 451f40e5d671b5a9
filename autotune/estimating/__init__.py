"""From a trace to microseconds: the rules, the space, VMEM, the simulator and the cost model."""
