"""What makes data and pictures of the product. Not installed with it, and no benchmark.

They write into the working tree, need the real TPU compiler or a browser, and are run by those who
change the product: that is why they are no commands of ``autotune``.
"""
