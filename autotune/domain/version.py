"""The version of this product, which the package metadata reads."""

VERSION = "0.1.0"
