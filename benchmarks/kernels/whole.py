"""Kernels of the catalogue that would be verified with fewer heads and batches, unreduced here."""

from dataclasses import replace

from autotune_kernels.flash_attention import KERNEL

FLASH_ATTENTION = replace(KERNEL, reduced=None)
