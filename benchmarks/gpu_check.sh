#!/bin/sh
# Correctness, a short training, speed and memory on a machine with a card, in at most ten minutes; prints a report.
# Needs Python >= 3.11 with torch, numpy, scikit-learn, safetensors, PyYAML and rich; the package itself need not be
# installed. PYTHON=/path/to/python names another interpreter; arguments are passed to gpu_check.py.
set -eu
cd "$(dirname "$0")/.."
export PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}"
limit=""
if command -v timeout >/dev/null; then limit="timeout 600"; fi
exec $limit "${PYTHON:-python3}" benchmarks/gpu_check.py "$@"
