# certificates.sh: certificates of a plane's own authority, and kubeconfigs with them. Sourced, not run.
# shellcheck shell=bash

# certificate FOLDER NAME SUBJECT [EXTENSION]: a key and a certificate.
certificate() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3 -subj "$3" \
    -CA "$1/ca.crt" -CAkey "$1/ca.key" -keyout "$1/$2.key" -out "$1/$2.crt" \
    -addext "basicConstraints=critical,CA:FALSE" ${4:+-addext "$4"} 2>"$1/openssl.log"
}

# kubeconfig FOLDER NAME: the file for the user that has the certificate of that name.
kubeconfig() {
  cat >"$1/$2.kubeconfig" <<YAML
apiVersion: v1
kind: Config
current-context: plane
contexts:
- name: plane
  context: {cluster: plane, user: $2}
clusters:
- name: plane
  cluster:
    server: $(<"$1/server")
    certificate-authority-data: $(base64 -w0 "$1/ca.crt")
users:
- name: $2
  user:
    client-certificate-data: $(base64 -w0 "$1/$2.crt")
    client-key-data: $(base64 -w0 "$1/$2.key")
YAML
}
