// What kernels do with TensorFlow's tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "c_api.h"
#include "in_flight.h"
#include "status.h"

namespace corro::tensorflow {

/// corro's number of a dtype; fills `status` if it has none.
[[nodiscard]] uint8_t dtype_of(const TF_Tensor* tensor, Status& status);
[[nodiscard]] std::vector<int64_t> shape_of(const TF_Tensor* tensor);
/// Elements of a row.
[[nodiscard]] uint64_t row_of(const std::vector<int64_t>& shape);
/// The dims of a row.
[[nodiscard]] std::vector<uint64_t> dims_of_row(const std::vector<int64_t>& shape);
/// Each rank's part of the rows: the first ranks get one more if they cannot be even.
[[nodiscard]] std::vector<uint64_t> even_rows(int64_t rows, int ranks);

[[nodiscard]] Tensor input_of(const InFlight& call, int i, const Status& status);
/// Null, and `status` filled, without memory.
[[nodiscard]] TF_Tensor* make_output(InFlight& call, int i, TF_DataType type,
                                     const std::vector<int64_t>& shape, const Status& status);

}  // namespace corro::tensorflow
