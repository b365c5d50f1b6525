# Debian's Python with numpy, mpirun and corro, for pods that train; as `make images` builds it without an engine:
#   make build/stamps/wheels
#   docker build -f deploy/images/python.Dockerfile -t corro-python:0.1.0 .
FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3 python-is-python3 python3-pip python3-numpy python3-yaml \
    python3-packaging openmpi-bin dataset-fashion-mnist \
 && rm -rf /var/lib/apt/lists/* /usr/bin/ssh \
 && useradd --uid 1000 --create-home corro
COPY build/wheels /tmp/wheels
RUN pip install --no-cache-dir --no-deps --no-index --break-system-packages /tmp/wheels/*.whl && rm -r /tmp/wheels
COPY examples/numpy_mnist.py /examples/
# Horovod's image has its script under this name; manifests start that. Without TensorFlow numpy's stands for it.
COPY examples/numpy_mnist.py /examples/tensorflow_mnist.py
USER 1000:1000
WORKDIR /home/corro
ENV LANG=C.UTF-8
CMD ["python3"]
