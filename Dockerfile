# IN²R in a container:
#   docker build -t in2r .
#   docker run --rm --network none --user "$(id -u):$(id -g)" -v "$PWD:/work" in2r          # the demo, in ./demo
#   docker run --rm --network none --user "$(id -u):$(id -g)" -v "$PWD:/work" in2r audit ...
# Build arguments:
#   BASE         an image with Python, pip and useradd; the pins are tested on Python 3.11
#   TORCH_INDEX  a package index with the build of PyTorch to take: one for the CPU alone makes the image gigabytes
#                smaller, one for a CUDA version suits a driver. Empty: the build of the usual index, on Linux x86-64
#                one that runs on a CPU and, with `docker run --gpus all`, on CUDA
#   EXTRAS       the extras of the package
ARG BASE=python:3.11-slim

FROM ${BASE} AS wheel
WORKDIR /source
COPY . .
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheel .

FROM ${BASE}
ARG TORCH_INDEX=
ARG EXTRAS=transformers,scenes,parquet,plots,search
# PyTorch first: the large layer stays when the source or the other pins change
COPY requirements.txt /tmp/requirements.txt
RUN pip install --no-cache-dir ${TORCH_INDEX:+--extra-index-url "${TORCH_INDEX}"} \
    "$(grep '^torch==' /tmp/requirements.txt)" -c /tmp/requirements.txt
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel \
    pip install --no-cache-dir "$(echo /wheel/in2r-*.whl)[${EXTRAS}]" -c /tmp/requirements.txt
# any user may write to the work folder: it is that of `--user`, or the image's own
RUN useradd --create-home in2r && install -d -m 1777 /work
# what libraries keep of their own, such as downloaded encoders and fonts
ENV HOME=/tmp
USER in2r
WORKDIR /work
ENTRYPOINT ["in2r"]
CMD ["demo"]
