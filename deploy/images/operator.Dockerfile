# The operator's image, as `make images` builds it without a container engine:
#   make build/stamps/pod-program
#   docker build -f deploy/images/operator.Dockerfile -t corro:0.1.0 .
FROM scratch
COPY build/release/pod/corro /bin/corro
COPY LICENSE /LICENSE
# A number, since there is no /etc/passwd and `runAsNonRoot` asks for one.
USER 65532:65532
ENTRYPOINT ["/bin/corro"]
CMD ["operator"]
