# A Horovod user's image on corro: scripts keep `import horovod.torch as hvd`, and mpirun or horovodrun starts them.
# No sshd, no MPI library, no compiler: in pods corro brings the remote shell.
#   make wheel     wheels for every glibc since 2.28
#   docker build -f deploy/images/horovod.Dockerfile -t my-training:1 .
# BASE may be any image with glibc and CPython 3.11, as the wheel's; mpirun needs openmpi-bin, horovodrun does not.
ARG BASE=python:3.11-slim
FROM ${BASE}
COPY dist/*.whl /tmp/wheels/
RUN pip install --no-cache-dir /tmp/wheels/*.whl numpy torch && rm -r /tmp/wheels
USER 1000:1000
