// allreduce_mpi SECONDS BYTES...: the times of the MPI that it was linked with.
#include <mpi.h>

#include "bench/measure.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  corro::bench::Peer peer;
  MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &peer.size);
  peer.allreduce = [](float* data, size_t count) {
    MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  };
  peer.allocate = [](size_t count) {
    return static_cast<float*>(std::aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64));
  };
  peer.release = [](float* data) { std::free(data); };
  corro::bench::measure(peer, corro::bench::Sizes::parse(argc, argv, 1));
  MPI_Finalize();
}
