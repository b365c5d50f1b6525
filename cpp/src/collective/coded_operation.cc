#include "collective/coded_operation.h"

#include <string_view>
#include <utility>
#include <vector>

#include "collective/operation/element.h"
#include "collective/operation/fold.h"

namespace corro::collective {

OpRequest travelling(const OpRequest& request) {
  const Codec& codec = *request.codec;
  OpRequest small{.kind = OpKind::kAllreduce,
                  .reduce_op = request.reduce_op,
                  .count = request.count,
                  .prescale = request.prescale,
                  .postscale = request.postscale,
                  .absent = request.absent,
                  .gives_identity = request.gives_identity,
                  .element = element_number(long_name(request.dtype)),
                  .shape = request.shape,
                  .timeout = request.timeout,
                  .name = request.name};
  if (const auto dtype = codec.folds_as()) {
    small.dtype = *dtype;
    return small;
  }
  // Bytes say nothing of what they mean: the name of the codec stands in for their shape.
  const std::string_view name = codec.name();
  const std::vector<uint64_t> letters(name.begin(), name.end());
  small.kind = OpKind::kAllgather;
  small.dtype = DType::kU8;
  small.reduce_op = ReduceOp::kSum;
  small.count = codec.encoded_bytes(request.dtype, request.count);
  small.prescale = small.postscale = 1;
  small.shape = pack_shape(letters);
  return small;
}

namespace {

class CodedOperation final : public Operation {
 public:
  CodedOperation(const OpRequest& request, int32_t size, SegmentPool& pool,
                 const StartTravelling& start)
      : request_(request),
        codec_(*request.codec),
        size_(size),
        pool_(pool),
        small_(travelling(request)),
        folds_(codec_.folds_as().has_value()) {
    status_ = begin(start);
    begun_ = status_.ok();
  }

  Progress poll(bool oldest) override {
    if (!begun_) return give_group_up(std::exchange(status_, {}));
    small_.absent = request_.absent;  // It may have grown.
    const Progress progress = travel_->poll(oldest);
    wait(travel_->phase(), travel_->waiting_for());
    if (progress != Progress::kDone) return progress;
    if (!travel_->status().ok())
      return travel_->fatal() ? give_group_up(travel_->status()) : finish(travel_->status());
    torn_ = true;
    Status decoded =
        folds_ ? codec_.decode(request_.dtype, buffer_.data, request_.count, request_.output)
               : fold_all();
    // Others are done with it: a result is there once all have read and written.
    pool_.give_back(buffer_);
    return decoded.ok() ? finish({}) : give_group_up(std::move(decoded));
  }

  void return_memory() override {
    if (begun_) pool_.give_back(buffer_);
  }

  void abandon() override {
    if (travel_ != nullptr) travel_->abandon();
  }

 private:
  /// Where buffers are not as they should be, what travels has none either, and all ranks hear of
  /// it as they do without a codec.
  Status begin(const StartTravelling& start) {
    if (validate(request_, 0, 1).ok()) {
      const uint64_t bytes = folds_ ? small_.count * size_of(small_.dtype) : small_.count;
      CORRO_ASSIGN(buffer_, pool_.take(bytes * (folds_ ? 1 : static_cast<uint64_t>(size_))));
      CORRO_TRY(encode());
      small_.output = buffer_.data;
      small_.input = folds_ ? buffer_.data : encoded_.data();
    }
    travel_ = start(small_);
    return {};
  }

  Status encode() {
    const std::byte* from = request_.input;
    std::vector<std::byte> scaled;
    if (!folds_) {
      encoded_.resize(small_.count);
      if (input_scale(request_) != 1) {
        scaled.resize(request_.count * size_of(request_.dtype));
        copy_contribution(request_, scaled.data(), from, request_.count);
        from = scaled.data();
      }
    }
    return codec_.encode(request_.dtype, from, request_.count,
                         folds_ ? buffer_.data : encoded_.data());
  }

  /// Rank by rank, as all ranks do: the result is the same to the bit.
  Status fold_all() {
    const uint64_t bytes = request_.count * size_of(request_.dtype);
    std::vector<std::byte> decoded(bytes * static_cast<size_t>(size_));
    std::vector<const std::byte*> sources;
    for (int32_t r = 0; r < size_; ++r) {
      const auto place = static_cast<size_t>(r);
      std::byte* into = decoded.data() + place * bytes;
      CORRO_TRY(
          codec_.decode(request_.dtype, buffer_.data + place * small_.count, request_.count, into));
      sources.push_back(into);
    }
    fold_final(request_, size_, request_.output, sources, request_.count);
    return {};
  }

  const OpRequest& request_;
  const Codec& codec_;
  const int32_t size_;
  SegmentPool& pool_;
  OpRequest small_;
  const bool folds_;
  bool begun_ = false;
  SegmentPool::Buffer buffer_;
  std::vector<std::byte> encoded_;
  std::unique_ptr<Operation> travel_;
};

}  // namespace

std::unique_ptr<Operation> make_coded_operation(const OpRequest& request, int32_t size,
                                                SegmentPool& pool, const StartTravelling& start) {
  return std::make_unique<CodedOperation>(request, size, pool, start);
}

}  // namespace corro::collective
