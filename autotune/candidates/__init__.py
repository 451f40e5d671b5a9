"""Which configs there are: the rules, VMEM bytes, the roofline, and the space made of them."""
