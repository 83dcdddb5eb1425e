#!/bin/sh
# Correctness, speed and memory on a bare GPU machine in at most six minutes; writes benchmarks/results/gpu_<card>.json.
# Needs Python >= 3.11 with torch, numpy, scikit-learn, safetensors, PyYAML and rich; the package itself need not be
# installed. PYTHON=/path/to/python names another interpreter; arguments go to gpu_check.py.
set -eu
cd "$(dirname "$0")/.."
export PYTHONPATH="src${PYTHONPATH:+:$PYTHONPATH}"
limit=""
if command -v timeout >/dev/null; then limit="timeout 360"; fi
exec $limit "${PYTHON:-python3}" benchmarks/gpu_check.py "$@"
