"""Compilers on the nodes of a Ray cluster, behind the port that this machine's stand behind too.

``cluster`` is the only module that names Ray. What crosses is plain data: the questions of
``compiler.protocol`` with the sources of kernels in files, and their answers.
"""
