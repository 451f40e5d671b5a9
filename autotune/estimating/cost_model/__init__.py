"""From a simulated schedule to microseconds, and what measurements say of them."""
