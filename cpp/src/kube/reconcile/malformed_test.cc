// Objects with values of the wrong kind anywhere: a decision is made nevertheless, or a problem is
// named.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "base/sanitized.h"
#include "kube/reconcile/cluster_model.h"
#include "kube/reconcile/sample_jobs.h"

namespace corro::kube {
namespace {

constexpr int kSpoiltObjects = kSanitized ? 500 : 4000;

/// All values inside of a value, itself first.
void gather(Json& value, std::vector<Json*>& all) {
  all.push_back(&value);
  if (!value.is_structured()) return;
  for (Json& inner : value) gather(inner, all);
}

void spoil(Json& object, std::mt19937_64& random) {
  static const std::array kValues = {Json(),           Json(7),          Json(-1),
                                     Json(1e300),      Json("x"),        Json("123456789012345"),
                                     Json("True"),     Json(true),       Json::array(),
                                     Json::object(),   Json::array({7}), Json::array({Json()}),
                                     Json(UINT64_MAX), Json(INT64_MIN),  Json::object({{"a", 1}})};
  std::vector<Json*> all;
  gather(object, all);
  *all[random() % all.size()] = kValues.at(random() % kValues.size());
}

TEST(Malformed, ObjectsNeverThrow) {
  Options options;
  options.served = {"v1alpha2", true, true};
  options.gang_scheduler = "volcano";
  Json v1alpha1 = Json::parse(R"({"apiVersion": "kubeflow.org/v1", "kind": "MPIJob",
      "metadata": {"name": "mnist"},
      "spec": {"writtenAs": "v1alpha1", "gpus": 16, "gpusPerNode": 8}})");
  v1alpha1["spec"]["template"] = sample_template();
  int decided = 0;
  for (const Json& job : {sample_corro_job(2), sample_horovod_job(), sample_mpi_job(2),
                          sample_mpi_job(1, "v1"), v1alpha1}) {
    ClusterModel cluster(job, 1, options);
    ASSERT_TRUE(cluster.settle());
    cluster.harm_random_pod(ClusterModel::Harm::kOutOfMemory);
    std::mt19937_64 random(static_cast<uint64_t>(decided));
    for (int i = 0; i < kSpoiltObjects / 5; ++i) {
      Json spoilt = Json::object({{"job", cluster.job()}, {"others", Json::array()}});
      for (const char* kind : {"Pod", "Service", "ConfigMap", "Job", "PodGroup", "NetworkPolicy"}) {
        for (const Json* object : cluster.list(kind)) spoilt["others"].push_back(*object);
      }
      spoil(spoilt["job"], random);
      for (Json& object : spoilt["others"]) {
        if (random() % 3 == 0) spoil(object, random);
      }
      Observed observed;
      observed.job = &spoilt["job"];
      observed.options = &options;
      for (const Json& object : spoilt["others"])
        (object.is_object() && object.value("kind", Json()) == Json("Pod") ? observed.pods
                                                                           : observed.objects)
            .push_back(&object);
      ASSERT_NO_THROW({
        const ReadJob read = read_job(*observed.job, {});
        decided += reconcile(read, observed, cluster.now()).actions.empty() ? 0 : 1;
      }) << spoilt.dump(1);
    }
  }
  EXPECT_GT(decided, kSpoiltObjects / 10);
}

}  // namespace
}  // namespace corro::kube
