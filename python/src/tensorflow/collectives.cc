#include <numeric>
#include <optional>
#include <utility>

#include "kernels.h"
#include "tensors.h"

namespace corro::tensorflow {
namespace {

/// What the reductions have in common.
class Reduction {
 public:
  Reduction(TF_OpKernelConstruction* op, const Status& status) {
    TF_OpKernelConstruction_GetAttrInt32(op, "reduce_op", &reduce_op_, status.get());
    TF_OpKernelConstruction_GetAttrFloat(op, "prescale_factor", &prescale_, status.get());
    TF_OpKernelConstruction_GetAttrFloat(op, "postscale_factor", &postscale_, status.get());
    unsigned char divides = 0;
    TF_OpKernelConstruction_GetAttrBool(op, "divides_by_size", &divides, status.get());
    divides_by_size_ = divides != 0;
  }

  void describe(corro_group* group, corro_op& op) const {
    op.reduce_op = static_cast<uint8_t>(reduce_op_);
    op.has_scales = 1;
    op.prescale = prescale_;
    op.postscale = postscale_;
    if (divides_by_size_) op.postscale /= corro_group_size(group);
  }

 private:
  int32_t reduce_op_ = CORRO_SUM;
  float prescale_ = 1, postscale_ = 1;
  bool divides_by_size_ = false;  ///< Of the group, whoever has joined: Horovod's average.
};

/// Describes input i with an output of its shape, which has the input's memory if nobody else does.
void keep_shape(InFlight& call, int i, Description& description, Status& status) {
  Tensor input = input_of(call, i, status);
  if (!status.ok()) return;
  const std::vector<int64_t> shape = shape_of(input.get());
  input.reset();
  int forwarded = -1;
  TF_Tensor* const output =
      TF_ForwardInputOrAllocateOutput(call.context(), &i, 1, i, shape.data(),
                                      static_cast<int>(shape.size()), &forwarded, status.get());
  if (!status.ok()) return;
  call.keep(output);
  input = input_of(call, i, status);
  if (!status.ok()) return;
  description.op.dtype = dtype_of(output, status);
  description.op.output = TF_TensorData(output);
  description.op.count = static_cast<uint64_t>(TF_TensorElementCount(output));
  description.op.input = TF_TensorData(call.keep(input.release()));
  description.dims.assign(shape.begin(), shape.end());
}

class Allreduce : public Kernel {
 public:
  Allreduce(TF_OpKernelConstruction* op, const Status& status)
      : Kernel(op, status), reduction_(op, status) {}

 protected:
  void describe(InFlight& call, int i, corro_group* group, Description& description,
                Status& status) const override {
    keep_shape(call, i, description, status);
    description.op.kind = CORRO_ALLREDUCE;
    reduction_.describe(group, description.op);
  }

 private:
  Reduction reduction_;
};

class Broadcast : public Kernel {
 public:
  Broadcast(TF_OpKernelConstruction* op, const Status& status) : Kernel(op, status) {
    TF_OpKernelConstruction_GetAttrInt32(op, "root_rank", &root_, status.get());
  }

 protected:
  void describe(InFlight& call, int i, corro_group* /*group*/, Description& description,
                Status& status) const override {
    keep_shape(call, i, description, status);
    description.op.kind = CORRO_BROADCAST;
    description.op.root = root_;
  }

 private:
  int32_t root_ = 0;
};

/// Input i, which has rows.
Tensor rows_of(InFlight& call, int i, const char* op, Status& status) {
  Tensor input = input_of(call, i, status);
  if (status.ok() && TF_NumDims(input.get()) == 0)
    status.set(CORRO_FAILED_PRECONDITION,
               std::string(op) + ": at least one dim is needed; reshape a scalar to [1]");
  return input;
}

class ReduceScatter : public Kernel {
 public:
  ReduceScatter(TF_OpKernelConstruction* op, const Status& status)
      : Kernel(op, status), reduction_(op, status) {}

 protected:
  void describe(InFlight& call, int i, corro_group* group, Description& description,
                Status& status) const override {
    Tensor input = rows_of(call, i, "reducescatter", status);
    if (!status.ok()) return;
    std::vector<int64_t> shape = shape_of(input.get());
    description.dims.assign(shape.begin(), shape.end());
    description.counts = even_rows(shape[0], corro_group_size(group));
    const auto own = static_cast<size_t>(corro_group_rank(group));
    shape[0] = static_cast<int64_t>(description.counts[own]);
    for (uint64_t& count : description.counts) count *= row_of(shape);
    TF_Tensor* const output = make_output(call, i, TF_TensorType(input.get()), shape, status);
    if (!status.ok()) return;
    description.op.kind = CORRO_REDUCESCATTER;
    description.op.dtype = dtype_of(input.get(), status);
    description.op.count = description.counts[own];
    description.op.output = TF_TensorData(output);
    description.op.input = TF_TensorData(call.keep(input.release()));
    reduction_.describe(group, description.op);
  }

 private:
  Reduction reduction_;
};

/// An output that is made when it is known how many rows come, and another one for these numbers.
class LateOutput : public InFlight::Attachment {
 public:
  /// `sizes`: which output has the number of rows from each rank; none if nobody asks.
  LateOutput(InFlight& call, int output, std::optional<int> sizes, const TF_Tensor* like, int ranks)
      : call_(call),
        output_(output),
        sizes_(sizes),
        type_(TF_TensorType(like)),
        shape_(shape_of(like)),
        ranks_(static_cast<size_t>(ranks)) {}

  static void* allocate(void* self, const uint64_t* rows) {
    return static_cast<LateOutput*>(self)->make(
        {rows, rows + static_cast<LateOutput*>(self)->ranks_});
  }

 private:
  void* make(const std::vector<uint64_t>& rows) {
    const Status status;
    shape_[0] = static_cast<int64_t>(std::accumulate(rows.begin(), rows.end(), uint64_t{0}));
    TF_Tensor* const output = make_output(call_, output_, type_, shape_, status);
    if (output == nullptr) return nullptr;
    if (sizes_ && !tell(rows, status)) return nullptr;
    return TF_TensorData(output);
  }

  bool tell(const std::vector<uint64_t>& rows, const Status& status) {
    TF_Tensor* const told =
        make_output(call_, *sizes_, TF_INT32, {static_cast<int64_t>(rows.size())}, status);
    if (told == nullptr) return false;
    auto* const numbers = static_cast<int32_t*>(TF_TensorData(told));
    for (size_t i = 0; i < rows.size(); ++i) numbers[i] = static_cast<int32_t>(rows[i]);
    return true;
  }

  InFlight& call_;
  int output_;
  std::optional<int> sizes_;
  TF_DataType type_;
  std::vector<int64_t> shape_;
  size_t ranks_;
};

/// Describes an input whose output is made later.
void describe_late(InFlight& call, Tensor input, int output, std::optional<int> sizes,
                   corro_group* group, Description& description, Status& status) {
  description.dims = dims_of_row(shape_of(input.get()));
  description.op.dtype = dtype_of(input.get(), status);
  description.op.allocate = &LateOutput::allocate;
  description.op.allocate_context = call.attach(
      std::make_unique<LateOutput>(call, output, sizes, input.get(), corro_group_size(group)));
  description.op.input = TF_TensorData(call.keep(input.release()));
}

class Allgather : public Kernel {
 public:
  using Kernel::Kernel;

 protected:
  void describe(InFlight& call, int i, corro_group* group, Description& description,
                Status& status) const override {
    Tensor input = rows_of(call, i, "allgather", status);
    if (!status.ok()) return;
    description.op.kind = CORRO_ALLGATHER;
    description.op.count = static_cast<uint64_t>(TF_Dim(input.get(), 0));
    describe_late(call, std::move(input), i, std::nullopt, group, description, status);
  }
};

/// Inputs: the tensor, and how many of its rows go to each rank; none: as many to each.
class Alltoall : public Kernel {
 public:
  using Kernel::Kernel;

 protected:
  [[nodiscard]] int tensors(const InFlight& /*call*/) const override { return 1; }
  void describe(InFlight& call, int /*i*/, corro_group* group, Description& description,
                Status& status) const override {
    Tensor input = rows_of(call, 0, "alltoall", status);
    if (!status.ok()) return;
    const Tensor splits = input_of(call, 1, status);
    if (!status.ok()) return;
    description.send_counts =
        rows_for_each(TF_Dim(input.get(), 0), splits.get(), corro_group_size(group), status);
    if (!status.ok()) return;
    description.op.kind = CORRO_ALLTOALL;
    describe_late(call, std::move(input), 0, 1, group, description, status);
  }

 private:
  static std::vector<uint64_t> rows_for_each(int64_t rows, const TF_Tensor* splits, int ranks,
                                             Status& status) {
    const int64_t given = TF_TensorElementCount(splits);
    if (given == 0 && rows % ranks == 0)
      return std::vector<uint64_t>(static_cast<size_t>(ranks), static_cast<uint64_t>(rows / ranks));
    const auto* numbers = static_cast<const int32_t*>(TF_TensorData(splits));
    std::vector<uint64_t> parts;
    int64_t left = rows;
    for (int64_t i = 0; i < given && left >= 0 && numbers[i] >= 0; ++i) {
      left -= numbers[i];
      parts.push_back(static_cast<uint64_t>(numbers[i]));
    }
    if (left < 0 || parts.size() != static_cast<size_t>(ranks))
      status.set(
          CORRO_INVALID_ARGUMENT,
          given == 0
              ? "alltoall: " + std::to_string(rows) + " rows cannot be divided evenly among " +
                    std::to_string(ranks) + " ranks; give splits"
              : "alltoall: splits have to be " + std::to_string(ranks) +
                    " numbers that are not negative, together at most " + std::to_string(rows));
    return parts;
  }
};

template <typename Made>
void* create(TF_OpKernelConstruction* op) {
  const Status status;
  std::unique_ptr<Kernel> kernel = std::make_unique<Made>(op, status);
  if (status.ok()) return kernel.release();
  TF_OpKernelConstruction_Failure(op, status.get());
  return nullptr;
}

void run(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  static_cast<const Kernel*>(kernel)->start(std::make_unique<InFlight>(context, done));
}

void run_to_the_end(void* kernel, TF_OpKernelContext* context) { run(kernel, context, nullptr); }

void destroy(void* kernel) { delete static_cast<Kernel*>(kernel); }

template <typename Made>
void register_kernel(const std::string& collective) {
  const Status status;
  const bool waits = TF_NewAsyncKernelBuilder == nullptr;
  for (const std::string& name : {collective, collective + kInOrder}) {
    const char* const op = name.c_str();
    TF_RegisterKernelBuilder(
        op,
        waits ? TF_NewKernelBuilder(op, "CPU", &create<Made>, &run_to_the_end, &destroy)
              : TF_NewAsyncKernelBuilder(op, "CPU", &create<Made>, &run, &destroy),
        status.get());
  }
}

}  // namespace

void register_kernels() {
  register_kernel<Allreduce>("CorroAllreduce");
  register_kernel<Broadcast>("CorroBroadcast");
  register_kernel<ReduceScatter>("CorroReducescatter");
  register_kernel<Allgather>("CorroAllgather");
  register_kernel<Alltoall>("CorroAlltoall");
}

}  // namespace corro::tensorflow
