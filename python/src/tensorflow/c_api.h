// What the plug-in uses of TensorFlow's C API (tensorflow/c/{tf_status,tf_tensor,ops,kernels}.h),
// declared here so that it is built without TensorFlow. The symbols are found when TensorFlow loads
// it, so one binary serves every version from 2.12 on. test_tensorflow.py compiles this with
// TensorFlow's own headers before it, which fails where they differ.
#pragma once

#include <cstddef>
#include <cstdint>

// NOLINTBEGIN(readability-identifier-naming): TensorFlow's names.
extern "C" {

#ifndef CORRO_WITH_TENSORFLOW_HEADERS
struct TF_Status;
struct TF_Tensor;
struct TF_OpDefinitionBuilder;
struct TF_ShapeHandle;
struct TF_ShapeInferenceContext;
struct TF_KernelBuilder;
struct TF_OpKernelConstruction;
struct TF_OpKernelContext;
struct TF_AsyncOpKernelDoneCallback;
enum TF_Code : int {};  // The numbers of corro_code.
enum TF_DataType : int {
  TF_FLOAT = 1,
  TF_DOUBLE = 2,
  TF_INT32 = 3,
  TF_UINT8 = 4,
  TF_INT16 = 5,
  TF_INT8 = 6,
  TF_INT64 = 9,
  TF_BOOL = 10,
  TF_BFLOAT16 = 14,
  TF_UINT16 = 17,
  TF_HALF = 19,
  TF_UINT32 = 22,
  TF_UINT64 = 23,
};
struct TF_StringView {
  const char* data;
  size_t len;
};
#endif

TF_Status* TF_NewStatus();
void TF_DeleteStatus(TF_Status* status);
void TF_SetStatus(TF_Status* status, TF_Code code, const char* message);
void TF_SetPayload(TF_Status* status, const char* key, const char* value);
TF_Code TF_GetCode(const TF_Status* status);
const char* TF_Message(const TF_Status* status);

void TF_DeleteTensor(TF_Tensor* tensor);
TF_DataType TF_TensorType(const TF_Tensor* tensor);
int TF_NumDims(const TF_Tensor* tensor);
int64_t TF_Dim(const TF_Tensor* tensor, int dim);
void* TF_TensorData(const TF_Tensor* tensor);
int64_t TF_TensorElementCount(const TF_Tensor* tensor);

TF_OpDefinitionBuilder* TF_NewOpDefinitionBuilder(const char* name);
void TF_RegisterOpDefinition(TF_OpDefinitionBuilder* builder, TF_Status* status);
void TF_OpDefinitionBuilderAddAttr(TF_OpDefinitionBuilder* builder, const char* spec);
void TF_OpDefinitionBuilderAddInput(TF_OpDefinitionBuilder* builder, const char* spec);
void TF_OpDefinitionBuilderAddOutput(TF_OpDefinitionBuilder* builder, const char* spec);
void TF_OpDefinitionBuilderSetIsStateful(TF_OpDefinitionBuilder* builder, bool is_stateful);
void TF_OpDefinitionBuilderSetShapeInferenceFunction(
    TF_OpDefinitionBuilder* builder,
    void (*infer)(TF_ShapeInferenceContext* context, TF_Status* status));

TF_ShapeHandle* TF_NewShapeHandle();
TF_ShapeHandle* TF_ShapeInferenceContextScalar(TF_ShapeInferenceContext* context);
void TF_DeleteShapeHandle(TF_ShapeHandle* handle);
int64_t TF_ShapeInferenceContextNumInputs(TF_ShapeInferenceContext* context);
void TF_ShapeInferenceContextGetInput(TF_ShapeInferenceContext* context, int i,
                                      TF_ShapeHandle* handle, TF_Status* status);
void TF_ShapeInferenceContextSetUnknownShape(TF_ShapeInferenceContext* context, TF_Status* status);
void TF_ShapeInferenceContextSetOutput(TF_ShapeInferenceContext* context, int i,
                                       TF_ShapeHandle* handle, TF_Status* status);

/// This one and TF_RunAsyncOpKernelDoneCallback are null in TensorFlow 2.12.
[[gnu::weak]] TF_KernelBuilder* TF_NewAsyncKernelBuilder(
    const char* op, const char* device, void* (*create)(TF_OpKernelConstruction*),
    void (*compute)(void*, TF_OpKernelContext*, TF_AsyncOpKernelDoneCallback* done),
    void (*destroy)(void*));
TF_KernelBuilder* TF_NewKernelBuilder(const char* op, const char* device,
                                      void* (*create)(TF_OpKernelConstruction*),
                                      void (*compute)(void*, TF_OpKernelContext*),
                                      void (*destroy)(void*));
void TF_RegisterKernelBuilder(const char* name, TF_KernelBuilder* builder, TF_Status* status);
[[gnu::weak]] void TF_RunAsyncOpKernelDoneCallback(TF_AsyncOpKernelDoneCallback* done);

TF_StringView TF_OpKernelConstruction_GetName(TF_OpKernelConstruction* construction);
void TF_OpKernelConstruction_GetAttrInt32(TF_OpKernelConstruction* construction, const char* name,
                                          int32_t* value, TF_Status* status);
void TF_OpKernelConstruction_GetAttrFloat(TF_OpKernelConstruction* construction, const char* name,
                                          float* value, TF_Status* status);
void TF_OpKernelConstruction_GetAttrBool(TF_OpKernelConstruction* construction, const char* name,
                                         unsigned char* value, TF_Status* status);
void TF_OpKernelConstruction_Failure(TF_OpKernelConstruction* construction, TF_Status* status);

/// This one and TF_GetIterId are null in versions that do not have them.
[[gnu::weak]] uint64_t TF_GetFrameId(TF_OpKernelContext* context);
[[gnu::weak]] int64_t TF_GetIterId(TF_OpKernelContext* context);
int TF_NumInputs(TF_OpKernelContext* context);
void TF_GetInput(TF_OpKernelContext* context, int i, TF_Tensor** tensor, TF_Status* status);
TF_Tensor* TF_ForwardInputOrAllocateOutput(TF_OpKernelContext* context, const int* inputs,
                                           int input_count, int output, const int64_t* dims,
                                           int ndim, int* forwarded, TF_Status* status);
TF_Tensor* TF_AllocateOutput(TF_OpKernelContext* context, int output, TF_DataType type,
                             const int64_t* dims, int ndim, size_t bytes, TF_Status* status);
void TF_OpKernelContext_Failure(TF_OpKernelContext* context, TF_Status* status);

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
