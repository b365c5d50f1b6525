// Manifests for the tests of this folder.
#pragma once

#include <string>

#include "kube/job/job_spec.h"
#include "kube/reconcile/observed.h"

namespace corro::kube {

inline Json sample_template() {
  return Json::parse(
      R"({"spec": {"containers": [{"name": "main", "image": "user", "command": ["train"]}]}})");
}

/// A CorroJob that may restart without end.
inline Json sample_corro_job(int workers) {
  Json job = Json::parse(R"({"apiVersion": "training.corro.dev/v1", "kind": "CorroJob",
                             "metadata": {"name": "mnist"}, "spec": {"worker": {}}})");
  Json& worker = job["spec"]["worker"];
  worker["target"] = workers;
  worker["max"] = 8;
  worker["template"] = sample_template();
  for (const char* cause : {"userError", "lostPod", "outOfMemory"})
    job["spec"]["restart"][cause] =
        Json::parse(R"({"limit": 10000, "backoffSeconds": 1, "maxBackoffSeconds": 4})");
  return job;
}

/// The job with a proxy beside each of its programs, which does not end by itself.
inline Json with_sidecars(Json job) {
  const Json proxy = Json::parse(R"({"name": "proxy", "image": "proxy"})");
  if (job["kind"] == "CorroJob") {
    job["spec"]["worker"]["template"]["spec"]["containers"].push_back(proxy);
    return job;
  }
  for (Json& role : job["spec"]["mpiReplicaSpecs"])
    role["template"]["spec"]["containers"].push_back(proxy);
  return job;
}

/// A CorroJob that goes on with one worker.
inline Json sample_elastic_job(int workers) {
  Json job = sample_corro_job(workers);
  job["spec"]["worker"]["min"] = 1;
  return job;
}

/// Of an operator whose MPIJobs start as gangs, where the cluster serves its own.
inline Options native_gangs() {
  Options options;
  options.gang_scheduler = "native";
  options.served.native_gang = "v1alpha2";
  return options;
}

inline Json sample_mpi_job(int workers, const std::string& version = "v2beta1") {
  Json job = Json::parse(R"({"kind": "MPIJob", "metadata": {"name": "mnist"}})");
  job["apiVersion"] = "kubeflow.org/" + version;
  job["spec"]["writtenAs"] = version;
  Json& roles = job["spec"]["mpiReplicaSpecs"];
  roles["Launcher"]["replicas"] = 1;
  roles["Launcher"]["template"] = sample_template();
  roles["Worker"]["replicas"] = workers;
  roles["Worker"]["template"] = sample_template();
  return job;
}

/// What users of Horovod have had since 2019.
inline Json sample_horovod_job() {
  return Json::parse(R"({
      "apiVersion": "kubeflow.org/v1alpha2", "kind": "MPIJob",
      "metadata": {"name": "tensorflow-mnist"},
      "spec": {"writtenAs": "v1alpha2", "slotsPerWorker": 1, "cleanPodPolicy": "Running",
        "mpiReplicaSpecs": {
          "Launcher": {"replicas": 1, "template": {"spec": {"containers": [{
            "image": "horovod-cpu:latest", "name": "mpi-launcher", "command": ["mpirun"],
            "args": ["-np", "2", "--allow-run-as-root", "python", "/examples/tensorflow_mnist.py"],
            "resources": {"limits": {"cpu": 1, "memory": "2Gi"}}}]}}},
          "Worker": {"replicas": 2, "template": {"spec": {"containers": [{
            "image": "horovod-cpu:latest", "name": "mpi-worker", "command": [""],
            "resources": {"limits": {"cpu": 2, "memory": "4Gi"}}}]}}}}}})");
}

}  // namespace corro::kube
