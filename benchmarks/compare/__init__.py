"""The driver of benchmarks/compare_transformers. It needs nothing but Python's own library; the programs in peers/
run under the interpreter that install.py makes."""
